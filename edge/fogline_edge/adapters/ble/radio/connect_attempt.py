"""Attempts to connect to devices: one at a time, within the budget of scan pauses.

Scanning is paused until BlueZ reports the connection; the service discovery disturbs scanning no more than any connection.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bleak import BleakClient
from bleak.backends.bluezdbus.manager import get_global_bluez_manager
from bleak.backends.device import BLEDevice
from bleak_retry_connector import BleakNotFoundError, establish_connection

from fogline.errors import Unreachable
from fogline_edge.adapters.ble.supervision.pause_budget import SPREAD_S, PauseBudget
from fogline_edge.adapters.ble.supervision.supervisor import Effect, Supervisor

Ask = Callable[[Callable[[], list[Effect]]], asyncio.Future[None]]
"""Lets the supervisor decide something at its turn; the future is done after the effects."""


class ScanPause:
    """Pause for one attempt, at most `limit_s` (`None`: scanning goes on). `on_end` is called once, by the first `end`."""

    def __init__(self, limit_s: float | None, on_end: Callable[[], None]) -> None:
        self.limit_s = limit_s
        self._on_end = on_end
        self._ended = False

    def end(self) -> None:
        """Let scanning go on. Safe to call more than once."""
        if not self._ended:
            self._ended = True
            self._on_end()


class ConnectTurns:
    """Turns of all devices of an adapter."""

    def __init__(self, supervisor: Supervisor, ask: Ask) -> None:
        self._supervisor = supervisor
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._budget = PauseBudget()

    @asynccontextmanager
    async def connecting(self, address: str, *, failed: bool, pause: bool) -> AsyncIterator[ScanPause]:
        """Wait for the device's turn; no other device connects during the block. With `pause`, scanning is paused.

        The pause lasts until `ScanPause.end`. `failed`: the device's last attempt failed. Raises `Unreachable` if not ready.
        """
        async with self._turn(address, failed=failed, pause=pause):
            if not self._supervisor.phase.can_connect:
                raise Unreachable(self._supervisor.problem or "the radio is not ready")
            if not pause:
                yield ScanPause(None, lambda: None)
                return
            limit_s = self._budget.left_s(address, self._loop.time(), failed=failed)
            counted = self._budget.began(address, self._loop.time())

            def end() -> None:
                resumed = self._ask(self._supervisor.resume)
                resumed.add_done_callback(lambda _: self._budget.ended(counted, self._loop.time()))

            paused = ScanPause(limit_s, end)
            try:
                # shielded: the pause counts even if this attempt is cancelled, and `end` undoes it
                await asyncio.shield(self._ask(self._supervisor.pause))
                yield paused
            finally:
                paused.end()

    @asynccontextmanager
    async def _turn(self, address: str, *, failed: bool, pause: bool) -> AsyncIterator[None]:
        while True:
            async with self._lock:
                wait_s = self._budget.wait_s(address, self._loop.time(), failed=failed) if pause else 0.0
                if wait_s <= 0:
                    yield
                    return
            await asyncio.sleep(wait_s + random.uniform(0.0, SPREAD_S))


async def connect(device: BLEDevice, name: str, over: asyncio.Event, pause: ScanPause, limit_s: float) -> BleakClient:
    """Connect and discover the services, within `limit_s`. `over` is set when the connection ends.

    Raises `Unreachable` after a timeout, and bleak's own errors for everything else. Safe to cancel.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    waits_s = limit_s if pause.limit_s is None else min(limit_s, pause.limit_s)
    connected = False

    def on_connected() -> None:
        nonlocal connected
        if not connected:
            connected = True
            pause.end()
            if not limit.expired():
                limit.reschedule(began_s + limit_s)

    try:
        async with asyncio.timeout(waits_s) as limit, _watched(device.details["path"], on_connected):
            client = await establish_connection(
                BleakClient, device, name, disconnected_callback=lambda _: over.set(), max_attempts=1, use_services_cache=False
            )
    except (TimeoutError, BleakNotFoundError) as error:
        if not isinstance(error, TimeoutError) and not isinstance(error.__cause__, TimeoutError):
            raise
        if connected:
            raise Unreachable("it is connected, but answers no request") from None
        raise Unreachable("it advertises, but accepts no connection") from None
    if not client.is_connected:
        over.set()
    return client


@asynccontextmanager
async def _watched(path: str, on_connected: Callable[[], None]) -> AsyncIterator[None]:
    """Call `on_connected` when BlueZ reports the connection, or at once if the device is already connected."""
    manager = await get_global_bluez_manager()
    if manager.is_connected(path):
        on_connected()
    watcher = manager.add_device_watcher(path, lambda up: on_connected() if up else None, lambda _, __: None)
    try:
        yield
    finally:
        manager.remove_device_watcher(watcher)
