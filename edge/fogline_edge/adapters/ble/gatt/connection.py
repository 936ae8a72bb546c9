"""One connection to a device: its characteristics, notifications, and reads in turn, as the profile asks for."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bleak import BleakClient
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.exc import BleakDBusError, BleakError, BleakGATTProtocolError

from fogline_edge.adapters.ble.counters import BleCounters
from fogline_edge.adapters.ble.gatt.read_schedule import ReadEchoes, ReadSchedule
from fogline_edge.adapters.ble.radio.bleak_manager import BLUEZ_ERRORS, error_text
from fogline_edge.profiles.ble import BleProfile, full_uuid

ATT_LIMIT_S = 30.0
"""Time limit of an ATT transaction (Core Specification, Vol 3, Part F, section 3.3.3)."""
_NOTIFY_TRIES = 6
_FIRST_NOTIFY_PAUSE_S = 0.25
_IN_PROGRESS = "org.bluez.Error.InProgress"
_CANNOT = ("org.bluez.Error.NotSupported", "org.bluez.Error.NotPermitted")
_PERMANENT = (0x03, 0x05, 0x06, 0x08, 0x0C, 0x0F)  # ATT errors: not permitted, not supported, or solved only by pairing
_ANSWER_FIRST_S = 1.0  # delay of a read whose characteristic a command waits for: its notification comes first

OnNotification = Callable[[BleakGATTCharacteristic, bytearray], None]


@dataclass(eq=False)
class ConnectedDevice:
    """A connected device. `over`: set at the end of the connection, or to end it. `alive`: to call at a sign of life."""

    client: BleakClient
    profile: BleProfile
    over: asyncio.Event
    alive: Callable[[], None]
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _awaited: dict[str, asyncio.Future[bytes]] = field(default_factory=dict)
    _reading: str | None = None
    _read: asyncio.Event = field(default_factory=asyncio.Event)

    def notified(self, characteristic: str, value: bytes) -> None:
        """Take in a notification; a command may wait for it."""
        self.alive()
        if self.awaits(characteristic):
            self._awaited[characteristic].set_result(value)

    def awaits(self, characteristic: str) -> bool:
        """Return True if a command waits for the next notification: BlueZ's echo of a read would be taken for it."""
        waiting = self._awaited.get(characteristic)
        return waiting is not None and not waiting.done()

    @contextmanager
    def reading(self, characteristic: str) -> Iterator[None]:
        """Mark the characteristic as being read during the block. One read at a time."""
        self._reading = characteristic
        self._read.clear()
        try:
            yield
        finally:
            self._reading = None
            self._read.set()

    async def next_notification(self, characteristic: str) -> asyncio.Future[bytes]:
        """Return a future of the next notification, which the caller cancels in the end. Waits while a read is under way."""
        while self._reading == characteristic:
            await self._read.wait()
        waiting = self._awaited[characteristic] = asyncio.get_running_loop().create_future()
        return waiting


@dataclass(eq=False)
class GattConnection:
    """The connection to `device`. Calls `on_value(uuid, value)`, and `on_missing(why)` if a characteristic cannot be used."""

    device: ConnectedDevice
    on_value: Callable[[str, bytes], None]
    on_missing: Callable[[str], None]
    counters: BleCounters

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notified = {full_uuid(each.characteristic) for each in self.device.profile.notify}
        self._subscribed = _subscribed(self.device.profile)
        self._echoes = ReadEchoes()
        self._schedule: ReadSchedule | None = None
        self._missing: dict[str, str] = {}
        self._read_errors: dict[str, str] = {}

    @property
    def problem(self) -> str | None:
        """Characteristics that are missing, and those whose last read failed; `None` if there are none."""
        return "; ".join((*self._missing.values(), *self._read_errors.values())) or None

    @property
    def reads_nothing(self) -> bool:
        """True while the connection is up and no characteristic is read."""
        return not self.device.over.is_set() and self._schedule is not None and self._schedule.next() is None

    async def subscribe(self) -> None:
        """Subscribe to the notifications of the profile. Raises bleak's errors if the connection is broken."""
        for uuid in self._subscribed:
            why = await subscribe(self.device.client, uuid, partial(self._on_notification, uuid), self.counters)
            if why is not None:
                self._lacks(uuid, why)

    async def read_until_over(self) -> None:
        """Read each characteristic when it is due, until the connection is over."""
        schedule = self._schedule = ReadSchedule(self.device.profile.read, self._loop.time())
        over = self.device.over
        ended = self._loop.create_task(over.wait(), name="ble over")
        try:
            while not over.is_set():
                due = schedule.next()
                wait_s = None if due is None else max(0.0, due[1] - self._loop.time())
                await asyncio.wait((ended,), timeout=wait_s)
                if due is not None and not over.is_set():
                    await self._read(due[0], schedule)
        finally:
            ended.cancel()

    def _on_notification(self, uuid: str, _: BleakGATTCharacteristic, value: bytearray) -> None:
        data = bytes(value)
        if not self._echoes.is_echo(uuid, data, self._loop.time()):
            self.device.notified(uuid, data)
            if uuid in self._notified:
                self.on_value(uuid, data)

    async def _read(self, uuid: str, schedule: ReadSchedule) -> None:
        device = self.device
        if device.awaits(uuid):
            schedule.postpone(uuid, self._loop.time() + _ANSWER_FIRST_S)
            return
        characteristic = characteristic_of(device.client, uuid)
        if characteristic is None:
            self._lacks(uuid, f"there is no characteristic {uuid} to read")
            schedule.remove(uuid)
            return
        value: bytes | None = None
        self._echoes.read_begins(uuid)
        try:
            with device.reading(uuid):
                async with asyncio.timeout(ATT_LIMIT_S):
                    value = bytes(await device.client.read_gatt_char(characteristic))
            device.alive()
        except BLUEZ_ERRORS as error:
            self.counters.read_failures += 1
            self._read_errors[uuid] = f"{uuid} cannot be read: {error_text(error)}"
        else:
            self._read_errors.pop(uuid, None)
        now_s = self._loop.time()
        schedule.done(uuid, now_s)
        echoed = self._echoes.read_ends(uuid, value, now_s, subscribed=uuid in self._subscribed)
        if value is not None and not (echoed and uuid in self._notified):
            self.on_value(uuid, value)

    def _lacks(self, uuid: str, why: str) -> None:
        self._missing[uuid] = why
        self.on_missing(why)


def _subscribed(profile: BleProfile) -> list[str]:
    """Return the characteristics whose notifications are events or answers to commands."""
    answers = [each.answer_characteristic for each in profile.commands if each.answer_characteristic is not None]
    return list(dict.fromkeys(map(full_uuid, [*(each.characteristic for each in profile.notify), *answers])))


def characteristic_of(client: BleakClient, uuid: str) -> BleakGATTCharacteristic | None:
    """Return the characteristic of a UUID (full, lower case) with the lowest handle. Raises `BleakError` without services."""
    found = [each for each in client.services.characteristics.values() if each.uuid == uuid]
    return min(found, key=lambda each: each.handle, default=None)


async def subscribe(client: BleakClient, uuid: str, on_notification: OnNotification, counters: BleCounters) -> str | None:
    """Subscribe to the notifications of a characteristic. Returns a reason if the device can never send any.

    Retries while BlueZ is busy (`InProgress`), because bleak does not. Raises bleak's errors if the connection is broken.
    """
    characteristic = characteristic_of(client, uuid)
    if characteristic is None:
        return f"there is no characteristic {uuid} to subscribe to"
    cannot = f"{uuid} does not notify"
    if not {"notify", "indicate"} & set(characteristic.properties):
        return cannot
    pause_s = _FIRST_NOTIFY_PAUSE_S
    for left in range(_NOTIFY_TRIES - 1, -1, -1):
        try:
            async with asyncio.timeout(ATT_LIMIT_S):
                await client.start_notify(characteristic, on_notification)
        except (BleakDBusError, BleakGATTProtocolError) as error:
            if _is_permanent(error):
                return f"{cannot}: {error_text(error)}"
            if not left or not (isinstance(error, BleakDBusError) and error.dbus_error == _IN_PROGRESS):
                raise
            counters.notify_retries += 1
            await asyncio.sleep(pause_s)
            pause_s *= 2
        else:
            break
    return None


def _is_permanent(error: BleakError) -> bool:
    if isinstance(error, BleakGATTProtocolError):
        return int(error.code) in _PERMANENT
    return isinstance(error, BleakDBusError) and error.dbus_error in _CANNOT
