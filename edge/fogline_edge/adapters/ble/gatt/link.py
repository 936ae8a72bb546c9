"""Link to one listed device: connects once the device advertises, and again whenever the connection ends.

One task does everything of a connection, which is up until BlueZ says that it ended, or `bleak_manager.renew` ends it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from math import inf

from bleak import BleakClient
from bleak.backends.device import BLEDevice

from fogline.amqp.backoff import Backoff
from fogline.errors import Unreachable
from fogline.process.cancellation import end_tasks
from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.commands import GattCommands
from fogline_edge.adapters.ble.gatt.connection import ConnectedDevice, GattConnection
from fogline_edge.adapters.ble.radio.bleak_manager import BLUEZ_ERRORS, error_text
from fogline_edge.adapters.ble.radio.connect_attempt import ConnectTurns, connect
from fogline_edge.adapters.ble.roster import KnownDevice
from fogline_edge.adapters.ble.supervision.pause_budget import attempt_s
from fogline_edge.ble_settings import BleSettings

RECENT_S = 10.0
"""Longest time since the last advertisement for a connection attempt. Attempts to reach an absent device waste airtime."""
_LEAVE_S = 5.0
_STABLE_S = 30.0
_log = logging.getLogger(__name__)


class LinkState(StrEnum):
    """`AWAITED`: no recent advertisement, or the radio is not ready. `WAITING`: for the next attempt."""

    AWAITED = "awaited"
    CONNECTING = "connecting"
    UP = "up"
    WAITING = "waiting"


@dataclass(eq=False)
class DeviceLink:
    """The link to `known`. Calls `alive` at each sign of life, `on_value` for each new value, `ended` after each connection."""

    known: KnownDevice
    settings: BleSettings
    turns: ConnectTurns
    commands: GattCommands
    alive: Callable[[KnownDevice], None]
    ended: Callable[[KnownDevice], None]
    on_value: Callable[[KnownDevice, str, bytes], None]
    counters: BleCounters

    def __post_init__(self) -> None:
        self.state = LinkState.AWAITED
        self._loop = asyncio.get_running_loop()
        self._device: BLEDevice | None = None
        self._received_s = -inf
        self._received = asyncio.Event()
        self._connection: GattConnection | None = None
        self._why: str | None = None
        self._failures = 0
        self._up_s = inf
        self._warned: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """The reason why the link is not up; while it is up, the faults of the connection."""
        if self.state is LinkState.UP and self._connection is not None:
            return self._connection.problem
        return self._why

    @property
    def may_be_silent(self) -> bool:
        """True while the link is up and the profile reads nothing: then silence means nothing."""
        return self.state is LinkState.UP and self._connection is not None and self._connection.reads_nothing

    def start(self) -> None:
        """Connect as soon as the device advertises."""
        self._task = self._loop.create_task(self._run(), name=f"ble link {self.known.address}")

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            await end_tasks(task)

    def received(self, device: BLEDevice) -> None:
        """Note an advertisement of the device."""
        self._device, self._received_s = device, self._loop.time()
        self._received.set()

    def lost(self) -> None:
        """Note that BlueZ has forgotten the device: it must advertise again before the next attempt."""
        self._received_s = -inf
        self.renew()

    def renew(self) -> None:
        """End the present connection, if there is one; a new one follows."""
        if self._connection is not None:
            self._connection.device.over.set()

    async def _run(self) -> None:
        backoff = Backoff(base_s=0.5, cap_s=self.settings.longest_retry_s)
        while True:
            self.state = LinkState.AWAITED
            device = await self._awaited()
            self._up_s = inf
            try:
                if not await self._connect(device):
                    continue
            except Unreachable as error:
                self._failed(str(error))
            except BLUEZ_ERRORS as error:
                self._failed(error_text(error))
            except Exception as error:  # noqa: BLE001 - an unexpected error must not leave a device without its link
                _log.exception("Bluetooth: %s (%s): unexpected error", self.known.device, self.known.address)
                self._failed(f"{type(error).__name__}: {error}")
            if self._loop.time() - self._up_s > _STABLE_S:
                backoff.stable()
            self.state = LinkState.WAITING
            await asyncio.sleep(backoff.next_s())

    async def _awaited(self) -> BLEDevice:
        """Wait for a recent advertisement and for the device's name: commands are addressed to the name."""
        while not self.known.named or self._device is None or not self._is_recent:
            self._received.clear()
            await self._received.wait()
        return self._device

    @property
    def _is_recent(self) -> bool:
        return self._loop.time() - self._received_s <= RECENT_S

    async def _connect(self, device: BLEDevice) -> bool:
        """Connect and stay connected until the end. Returns False if the device was gone before its turn came."""
        over = asyncio.Event()
        address, failed = self.known.address, self._failures > 0
        async with self.turns.connecting(address, failed=failed, pause=self.settings.pause_scanning) as pause:
            if not self._is_recent:
                return False
            self.state = LinkState.CONNECTING
            limit_s = attempt_s(self.settings.connect_timeout_s, self._failures)
            self._failures += 1
            try:
                client = await connect(device, self.known.device, over, pause, limit_s)
            except (Unreachable, *BLUEZ_ERRORS):
                self.counters.connect_failures += 1
                raise
        connected, name = ConnectedDevice(client, self.known.profile, over, partial(self.alive, self.known)), self.known.device
        try:
            connection = GattConnection(connected, partial(self.on_value, self.known), self._warn_once, self.counters)
            self._connection = connection
            await connection.subscribe()
            self.state, self._why, self._failures, self._up_s = LinkState.UP, None, 0, self._loop.time()
            self.counters.connected += 1
            _log.info("Bluetooth: connected to %s (%s)", self.known.device, self.known.address, extra=self._fields)
            self.alive(self.known)
            self.commands.up(name, connected)
            await connection.read_until_over()
            self._failed("the link ended")
        finally:
            self._connection = None
            self.ended(self.known)
            self.counters.disconnected += self.state is LinkState.UP
            await self.commands.down(name, connected)
            await asyncio.shield(self._loop.create_task(_disconnect(client), name="ble leave"))
        return True

    def _warn_once(self, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            _log.warning("Bluetooth: %s (%s): %s", self.known.device, self.known.address, why, extra=self._fields)

    def _failed(self, why: str) -> None:
        if why != self._why:
            text = "Bluetooth: %s (%s): %s; trying again"
            _log.info(text, self.known.device, self.known.address, why, extra=self._fields)
        self._why = why

    @property
    def _fields(self) -> dict[str, str]:
        return {"device": self.known.device}


async def _disconnect(client: BleakClient) -> None:
    with contextlib.suppress(*BLUEZ_ERRORS):
        async with asyncio.timeout(_LEAVE_S):
            await client.disconnect()
