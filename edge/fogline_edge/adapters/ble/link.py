"""One device that is connected to: connect, ask for notifications, read in turn, write commands; and again when it ends.

Everything of a connection is done by one task, `_run`. A link is up for as long as BlueZ says so, and not longer: whoever
learns that BlueZ is gone has the clients told (`bluez.renew`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from math import inf

from bleak import BleakClient
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.backends.device import BLEDevice

from fogline.amqp.reconnect import Backoff
from fogline.errors import Unreachable
from fogline_edge.adapters.ble.airtime import attempt_s
from fogline_edge.adapters.ble.attempt import connect
from fogline_edge.adapters.ble.counters import Counters
from fogline_edge.adapters.ble.gatt import ATT_LIMIT_S, characteristic_of, listen
from fogline_edge.adapters.ble.radio import BLUEZ_ERRORS, Radio, shown
from fogline_edge.adapters.ble.roster import Known
from fogline_edge.adapters.ble.turns import Echoes, Turns
from fogline_edge.adapters.ble.writing import Line, Writing
from fogline_edge.profiles.ble import AnswerBy, BleProfile, full_uuid
from fogline_edge.settings import BleSettings

RECENT_S = 10.0
"""A device that was heard so recently is there: connecting to one that is not costs the radio's time."""
_LEAVE_S = 5.0
_ANSWER_FIRST_S = 1.0
"""How soon to look again whether a characteristic can be read, whose notification a command waits for."""
_STABLE_S = 30.0
_log = logging.getLogger(__name__)

OnKnown = Callable[[Known], None]
OnValue = Callable[[Known, str, bytes], None]


class LinkState(StrEnum):
    """`AWAITED`: not heard lately, or the radio is not ready. `CONNECTING`, `UP`. `WAITING`: for the next attempt."""

    AWAITED = "awaited"
    CONNECTING = "connecting"
    UP = "up"
    WAITING = "waiting"


class Link:
    """The link to `known`.

    `alive` is called when it is up and whenever the device says something, `value` for each value that is news, `ended` when a
    connection has.
    """

    def __init__(
        self,
        known: Known,
        settings: BleSettings,
        *,
        radio: Radio,
        writing: Writing,
        alive: OnKnown,
        ended: OnKnown,
        value: OnValue,
        counters: Counters,
    ) -> None:
        self.state = LinkState.AWAITED
        self._known = known
        self._settings = settings
        self._radio = radio
        self._writing = writing
        self._alive = partial(alive, known)
        self._ended = partial(ended, known)
        self._value = value
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._echoes = Echoes()
        self._notified = {full_uuid(each.characteristic) for each in known.profile.notify}
        self._listened = _listened(known.profile)
        self._device: BLEDevice | None = None
        self._seen_s = float("-inf")
        self._seen = asyncio.Event()
        self._over: asyncio.Event | None = None
        self._turns: Turns | None = None
        self._why: str | None = None
        self._failures = 0
        self._up_s = inf
        self._lacking: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        self._warned: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str | None:
        """Why it is not up; or, while it is, what of the profile the device does not do, and what could not be read last."""
        if self.state is not LinkState.UP:
            return self._why
        return "; ".join((*self._lacking.values(), *self._unread.values())) or None

    @property
    def unasked(self) -> bool:
        """Whether it is up and nothing of the device is read: it may say nothing for as long as it likes."""
        up = self.state is LinkState.UP and self._over is not None and not self._over.is_set()
        return up and self._turns is not None and self._turns.next() is None

    def start(self) -> None:
        """Connect as soon as it is heard."""
        self._task = self._loop.create_task(self._run(), name=f"ble link {self._known.address}")

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def seen(self, device: BLEDevice) -> None:
        """It was heard."""
        self._device, self._seen_s = device, self._loop.time()
        self._seen.set()

    def lost(self) -> None:
        """BlueZ knows nothing of it any more: it has to be heard again."""
        self._seen_s = float("-inf")
        self.renew()

    def renew(self) -> None:
        """The device is silent: end this connection, if there is one, and make another."""
        if self._over is not None:
            self._over.set()

    async def _run(self) -> None:
        backoff = Backoff(base_s=0.5, cap_s=self._settings.longest_retry_s)
        while True:
            self.state = LinkState.AWAITED
            device = await self._awaited()
            self._up_s = inf
            try:
                if not await self._connection(device):
                    continue
            except Unreachable as error:
                self._failed(str(error))
            except BLUEZ_ERRORS as error:
                self._failed(shown(error))
            except Exception as error:  # noqa: BLE001 - what nobody thought of must not leave a device without its link
                _log.exception("Bluetooth: %s (%s): an error that is not ours", self._known.device, self._known.address)
                self._failed(f"{type(error).__name__}: {error}")
            if self._loop.time() - self._up_s > _STABLE_S:
                backoff.stable()
            self.state = LinkState.WAITING
            await asyncio.sleep(backoff.next_s())

    async def _awaited(self) -> BLEDevice:
        """The device, once it has been heard lately and its name is known: commands come to its name."""
        while not self._known.named or self._device is None or not self._heard_lately:
            self._seen.clear()
            await self._seen.wait()
        return self._device

    @property
    def _heard_lately(self) -> bool:
        return self._loop.time() - self._seen_s <= RECENT_S

    async def _connection(self, device: BLEDevice) -> bool:
        """One connection, until it ends, or could not be made. Returns False if the device was gone before its turn came."""
        over = asyncio.Event()
        address, failed = self._known.address, self._failures > 0
        async with self._radio.connecting(address, failed=failed, pause=self._settings.pause_scanning) as pause:
            if not self._heard_lately:
                return False
            self.state = LinkState.CONNECTING
            limit_s = attempt_s(self._settings.connect_timeout_s, self._failures)
            self._failures += 1
            try:
                client = await connect(device, self._known.device, over, pause, limit_s)
            except (Unreachable, *BLUEZ_ERRORS):
                self._counters.connect_failures += 1
                raise
        line, name = Line(client, self._known.profile, over, self._alive), self._known.device
        try:
            self._over = over
            self._lacking.clear()
            self._unread.clear()
            await self._listen(client, line)
            self.state, self._why, self._failures, self._up_s = LinkState.UP, None, 0, self._loop.time()
            self._counters.connected += 1
            _log.info("Bluetooth: connected to %s (%s)", self._known.device, self._known.address)
            self._alive()
            self._writing.up(name, line)
            await self._read(line)
            self._failed("the link ended")
        finally:
            self._over = None
            self._ended()
            self._counters.disconnected += self.state is LinkState.UP
            await self._writing.down(name, line)
            await asyncio.shield(self._loop.create_task(_leave(client), name="ble leave"))
        return True

    async def _listen(self, client: BleakClient, line: Line) -> None:
        """Ask for notifications. What the device cannot do is said, and does not end the link."""
        for uuid in self._listened:
            why = await listen(client, uuid, partial(self._told, line, uuid), self._listens_again)
            if why is not None:
                self._lacks(uuid, why)

    def _listens_again(self) -> None:
        self._counters.notify_retries += 1

    def _told(self, line: Line, uuid: str, _: BleakGATTCharacteristic, value: bytearray) -> None:
        data = bytes(value)
        if self._echoes.told(uuid, data, self._loop.time()):
            line.told(uuid, data)
            if uuid in self._notified:
                self._value(self._known, uuid, data)

    async def _read(self, line: Line) -> None:
        """Read what is due, when it is, until the link is over."""
        turns = self._turns = Turns(self._known.profile.read, self._loop.time())
        over = line.over
        ended = self._loop.create_task(over.wait(), name="ble over")
        try:
            while not over.is_set():
                due = turns.next()
                wait_s = None if due is None else max(0.0, due[1] - self._loop.time())
                await asyncio.wait((ended,), timeout=wait_s)
                if due is not None and not over.is_set():
                    await self._read_one(line, due[0], turns)
        finally:
            ended.cancel()

    async def _read_one(self, line: Line, uuid: str, turns: Turns) -> None:
        if line.awaits(uuid):
            turns.later(uuid, self._loop.time() + _ANSWER_FIRST_S)
            return
        characteristic = characteristic_of(line.client, uuid)
        if characteristic is None:
            self._lacks(uuid, f"there is no characteristic {uuid} to read")
            turns.forget(uuid)
            return
        value: bytes | None = None
        self._echoes.begin(uuid)
        try:
            with line.reading(uuid):
                async with asyncio.timeout(ATT_LIMIT_S):
                    value = bytes(await line.client.read_gatt_char(characteristic))
            self._alive()
        except BLUEZ_ERRORS as error:
            self._counters.read_failures += 1
            self._unread[uuid] = f"{uuid} cannot be read: {shown(error)}"
        else:
            self._unread.pop(uuid, None)
        now_s = self._loop.time()
        turns.over(uuid, now_s)
        is_news = self._echoes.read(uuid, value, now_s, listened=uuid in self._listened) or uuid not in self._notified
        if is_news and value is not None:
            self._value(self._known, uuid, value)

    def _lacks(self, uuid: str, why: str) -> None:
        """What the profile asks for and the device does not do: once in the log, and in the state while the link is up."""
        self._lacking[uuid] = why
        if why not in self._warned:
            self._warned.add(why)
            _log.warning("Bluetooth: %s (%s): %s", self._known.device, self._known.address, why)

    def _failed(self, why: str) -> None:
        if why != self._why:
            _log.info("Bluetooth: %s (%s): %s; trying again", self._known.device, self._known.address, why)
        self._why = why


def _listened(profile: BleProfile) -> list[str]:
    """Whose notifications are asked for: events, and answers to commands."""
    answers = [each.answer_characteristic for each in profile.commands if each.answer is AnswerBy.NOTIFY]
    wanted = [*(each.characteristic for each in profile.notify), *(each for each in answers if each is not None)]
    return list(dict.fromkeys(map(full_uuid, wanted)))


async def _leave(client: BleakClient) -> None:
    """Disconnect; whatever BlueZ answers, nothing of the client is left."""
    with contextlib.suppress(*BLUEZ_ERRORS):
        async with asyncio.timeout(_LEAVE_S):
            await client.disconnect()
