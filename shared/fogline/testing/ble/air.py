"""Who is on the air: broadcasters with the bytes of real ones, and peripherals that are connected to."""

import asyncio
import logging
import struct
from collections.abc import Iterator
from typing import Any

from bumble.att import ATT_Error, ErrorCode
from bumble.core import UUID, AdvertisingData
from bumble.device import AdvertisingType, Device, DeviceConfiguration
from bumble.gatt import Characteristic, CharacteristicValue, Service
from bumble.hci import Address

from fogline.testing.ble.controller import Air, RadioController

TEMPERATURE_SERVICE, TEMPERATURE = "181a", "2a6e"
COMMAND_SERVICE = "6e400001-0000-4000-8000-00805f9b0001"
COMMAND = "6e400002-0000-4000-8000-00805f9b0001"
ACKNOWLEDGEMENT = "6e400003-0000-4000-8000-00805f9b0001"
IDLE = b"idle"
"""What is read of it."""
FORBIDDEN = "6e400004-0000-4000-8000-00805f9b0001"
LONG = "6e400005-0000-4000-8000-00805f9b0001"
TWICE = "6e400006-0000-4000-8000-00805f9b0001"
TWICE_VALUE = b"first"
LONG_VALUE = bytes(range(200))
_TYPE = AdvertisingData.Type
_FLAGS = (_TYPE.FLAGS, b"\x06")
_SERVICE_DATA, _MANUFACTURER = _TYPE.SERVICE_DATA_16_BIT_UUID, _TYPE.MANUFACTURER_SPECIFIC_DATA
_log = logging.getLogger(__name__)

BTHOME = (_SERVICE_DATA, b"\xd2\xfc" + bytes.fromhex("4002CA0903BF13"))
"""bthome.io/format: 25.06 degrees, 50.55 %."""
RUUVITAG = (_MANUFACTURER, bytes.fromhex("99040512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F"))
"""Ruuvi's own test vector for format 5: 24.3 degrees, sequence 205."""
IBEACON = (_MANUFACTURER, bytes.fromhex("4c000215E2C56DB5DFFB48D2B060D0F5A71096E000010002C5"))
EDDYSTONE = (_SERVICE_DATA, b"\xaa\xfe" + bytes.fromhex("20000bb815800000000a00000064"))
"""Eddystone-TLM: 3 V, 21.5 degrees."""


def bthome(packet_id: int, hundredths: int) -> tuple[int, bytes]:
    """BTHome v2: a packet id and a temperature in hundredths of a degree."""
    return _SERVICE_DATA, b"\xd2\xfc\x40" + struct.pack("<BBBh", 0, packet_id % 256, 2, hundredths)


def structures(*found: tuple[int, bytes]) -> bytes:
    """AD structures: the flags, and what is given."""
    return bytes(AdvertisingData([_FLAGS, *found]))


async def _make_device(air: Air, name: str, address: str, interval_ms: float) -> tuple[RadioController, Device]:
    controller = RadioController(name, air)
    settings = DeviceConfiguration(
        name=name, address=Address(address), advertising_interval_min=interval_ms, advertising_interval_max=interval_ms
    )
    device = Device.from_config_with_hci(settings, controller, controller)
    await device.power_on()
    return controller, device


class Broadcaster:
    """Says the same again and again, until `say` gives it something else to say. Nobody can connect to it."""

    def __init__(self, address: str, said: tuple[int, bytes], *, interval_ms: float = 100.0) -> None:
        self.address = address
        self._said = said
        self._interval_ms = interval_ms

    async def start(self, air: Air) -> None:
        """Begin."""
        self._controller, device = await _make_device(air, self.address, self.address, self._interval_ms)
        device.advertising_data = structures(self._said)
        await device.start_advertising(advertising_type=AdvertisingType.UNDIRECTED)

    def say(self, said: tuple[int, bytes]) -> None:
        """This from now on, and at once."""
        self._said = said
        advertiser = self._controller.le_legacy_advertiser
        advertiser.advertising_data = structures(said)
        advertiser.send_advertising_data()

    @property
    def silent(self) -> bool:
        """Whether nobody hears it."""
        return self._controller.silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._controller.silent = silent


class Peripheral:
    """Environmental Sensing with a temperature, and a service that takes commands.

    What is written to `COMMAND` is kept in `writes`. `ack:x` is answered with a notification of `x`; `drop` ends the link;
    `vanish:s` is silence for s seconds, as when the radio is out of reach; others do nothing. `FORBIDDEN` refuses writes.
    `LONG` can only be read. `TWICE` is the UUID of two characteristics: the second refuses writes, and says another value.
    While `mute`, it notifies nobody, and cannot be read. While `numb`, it accepts connections and answers no ATT request.
    While `aloof`, it advertises and accepts no connection.
    """

    def __init__(self, name: str, address: str, *, period_s: float = 0.2) -> None:
        self.name = name
        self.address = address
        self.writes: list[bytes] = []
        self.hundredths = 2150
        self.links = 0
        self.mute = False
        self._write_came = asyncio.Event()
        self._period_s = period_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, air: Air) -> None:
        """Begin to advertise."""
        self._controller, self._device = await _make_device(air, self.name, self.address, 100.0)
        self._device.add_services(list(self._services()))
        self._device.on("connection", self._connected)
        await self.advertise()
        self._do(self._measure())

    async def advertise(self) -> None:
        """Say its name as it is now, and what it measures."""
        uuid = struct.pack("<H", int(TEMPERATURE_SERVICE, 16))
        name = (_TYPE.COMPLETE_LOCAL_NAME, self.name.encode())
        self._device.advertising_data = structures(name, (_TYPE.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS, uuid))
        await self._device.stop_advertising()
        await self._device.start_advertising()

    @property
    def numb(self) -> bool:
        """Whether it ignores what comes over its links."""
        return self._controller.numb

    @numb.setter
    def numb(self, numb: bool) -> None:
        self._controller.numb = numb

    @property
    def aloof(self) -> bool:
        """Whether it ignores connection requests."""
        return self._controller.aloof

    @aloof.setter
    def aloof(self, aloof: bool) -> None:
        self._controller.aloof = aloof

    @property
    def linked(self) -> bool:
        """Whether somebody is connected."""
        return bool(self._device.connections)

    async def ended(self) -> None:
        """Return once nobody is connected."""
        while self.linked:
            ended = asyncio.get_running_loop().create_future()
            self._device.connections[next(iter(self._device.connections))].once("disconnection", ended.set_result)
            await ended

    async def until_linked(self) -> None:
        """Return once somebody is connected."""
        while not self.linked:
            connected = asyncio.get_running_loop().create_future()
            self._device.once("connection", connected.set_result)
            await connected

    async def drop(self) -> None:
        """End all links, as a device does that has had enough."""
        for connection in list(self._device.connections.values()):
            await connection.disconnect()

    async def vanish(self, seconds: float) -> None:
        """Be out of reach for so long."""
        self._controller.lose_radio()
        await asyncio.sleep(seconds)
        self._controller.silent = False
        await self._device.start_advertising()

    async def until_written(self, value: bytes) -> None:
        """Return once this was written to it."""
        while value not in self.writes:
            self._write_came.clear()
            await self._write_came.wait()

    def stop(self) -> None:
        """Measure no more."""
        for task in self._tasks:
            task.cancel()

    def _services(self) -> Iterator[Service]:
        can = Characteristic.Properties
        readable, writeable = Characteristic.Permissions.READABLE, Characteristic.Permissions.WRITEABLE
        self._temperature: Any = Characteristic(
            UUID(TEMPERATURE), can.READ | can.NOTIFY, readable, CharacteristicValue(read=self._read)
        )
        self._acknowledgement: Any = Characteristic(
            UUID(ACKNOWLEDGEMENT), can.READ | can.NOTIFY, readable, CharacteristicValue(read=self._read_idle)
        )
        written, refused = CharacteristicValue(write=self._written), CharacteristicValue(write=_refuse)
        command: Any = Characteristic(UUID(COMMAND), can.WRITE | can.WRITE_WITHOUT_RESPONSE, writeable, written)
        forbidden: Any = Characteristic(UUID(FORBIDDEN), can.WRITE, writeable, refused)
        long: Any = Characteristic(UUID(LONG), can.READ, readable, LONG_VALUE)
        both = can.READ | can.WRITE, readable | writeable
        first: Any = Characteristic(UUID(TWICE), *both, CharacteristicValue(read=lambda _: TWICE_VALUE, write=self._written))
        second: Any = Characteristic(UUID(TWICE), *both, CharacteristicValue(read=lambda _: b"second", write=_refuse))
        yield Service(UUID(TEMPERATURE_SERVICE), [self._temperature])
        yield Service(UUID(COMMAND_SERVICE), [command, self._acknowledgement, forbidden, long, first, second])

    def _read(self, _: Any) -> bytes:
        self._check_mute()
        return self._value()

    def _read_idle(self, _: Any) -> bytes:
        self._check_mute()
        return IDLE

    def _check_mute(self) -> None:
        if self.mute:
            raise ATT_Error(ErrorCode.UNLIKELY_ERROR)

    def _value(self) -> bytes:
        return struct.pack("<h", self.hundredths)

    def _connected(self, connection: Any) -> None:
        self.links += 1
        connection.on("disconnection", lambda _: self._do(self._advertise_again()))

    def _written(self, connection: Any, value: bytes) -> None:
        self.writes.append(bytes(value))
        self._write_came.set()
        self._do(self._obey(connection, bytes(value)))

    async def _obey(self, connection: Any, command: bytes) -> None:
        word, _, rest = command.partition(b":")
        if word == b"ack":
            await self._device.notify_subscribers(self._acknowledgement, rest)
        elif word == b"drop":
            await connection.disconnect()
        elif word == b"vanish":
            await asyncio.sleep(0)  # the write's own response first
            await self.vanish(float(rest))

    async def _advertise_again(self) -> None:
        if not self._controller.silent:
            await self._device.start_advertising()

    async def _measure(self) -> None:
        """Another temperature, told to whoever listens."""
        while True:
            await asyncio.sleep(self._period_s)
            self.hundredths = 2150 + (self.hundredths - 2149) % 1000
            if self._device.connections and not self.mute:
                try:
                    await self._device.notify_subscribers(self._temperature, self._value())
                except Exception:  # noqa: BLE001 - bumble raises all kinds of things while a link ends
                    _log.debug("%s cannot notify", self.name, exc_info=True)

    def _do(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _refuse(_: Any, __: bytes) -> None:
    raise ATT_Error(ErrorCode.WRITE_NOT_PERMITTED)
