"""Connectable device: Environmental Sensing with a temperature, and a service that takes commands."""

import asyncio
import logging
import struct
from collections.abc import Iterator
from typing import Any

from bumble.att import ATT_Error, ErrorCode
from bumble.core import UUID, AdvertisingData
from bumble.gatt import Characteristic, CharacteristicValue, Service

from fogline_lab.ble.air import make_device, structures
from fogline_lab.ble.controller import Air, RadioController

TEMPERATURE_SERVICE, TEMPERATURE = "181a", "2a6e"
COMMAND_SERVICE = "6e400001-0000-4000-8000-00805f9b0001"
COMMAND = "6e400002-0000-4000-8000-00805f9b0001"
ACKNOWLEDGEMENT = "6e400003-0000-4000-8000-00805f9b0001"
IDLE = b"idle"
"""The value of `ACKNOWLEDGEMENT` when it is read."""
FORBIDDEN = "6e400004-0000-4000-8000-00805f9b0001"
LONG = "6e400005-0000-4000-8000-00805f9b0001"
TWICE = "6e400006-0000-4000-8000-00805f9b0001"
TWICE_VALUE = b"first"
LONG_VALUE = bytes(range(200))
_TYPE = AdvertisingData.Type
_log = logging.getLogger(__name__)


class SensorGatt:
    """Characteristics of a `Peripheral`.

    `writes`: values written to `COMMAND`. `FORBIDDEN` refuses writes. `LONG` can only be read. `TWICE` is the UUID of two
    characteristics: the second refuses writes, and has another value. While `mute`, reads fail.
    """

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.hundredths = 2150
        self.mute = False
        self.temperature: Any = None
        self.acknowledgement: Any = None
        self._write_came = asyncio.Event()

    async def until_written(self, value: bytes) -> None:
        """Return once this value was written."""
        while value not in self.writes:
            self._write_came.clear()
            await self._write_came.wait()

    def services(self, on_write: Any) -> Iterator[Service]:
        """Build the services. `on_write` is called with the connection and each value written to `COMMAND`."""

        def written(connection: Any, value: bytes) -> None:
            self.writes.append(bytes(value))
            self._write_came.set()
            on_write(connection, bytes(value))

        can = Characteristic.Properties
        readable, writeable = Characteristic.Permissions.READABLE, Characteristic.Permissions.WRITEABLE
        both = can.READ | can.WRITE, readable | writeable
        notifies = can.READ | can.NOTIFY, readable
        taken, refused = CharacteristicValue(write=written), CharacteristicValue(write=_refuse)
        self.temperature = Characteristic(UUID(TEMPERATURE), *notifies, CharacteristicValue(read=self._read(self.value)))
        self.acknowledgement = Characteristic(
            UUID(ACKNOWLEDGEMENT), *notifies, CharacteristicValue(read=self._read(lambda: IDLE))
        )
        command: Any = Characteristic(UUID(COMMAND), can.WRITE | can.WRITE_WITHOUT_RESPONSE, writeable, taken)
        forbidden: Any = Characteristic(UUID(FORBIDDEN), can.WRITE, writeable, refused)
        long: Any = Characteristic(UUID(LONG), can.READ, readable, LONG_VALUE)
        first: Any = Characteristic(UUID(TWICE), *both, CharacteristicValue(read=lambda _: TWICE_VALUE, write=written))
        second: Any = Characteristic(UUID(TWICE), *both, CharacteristicValue(read=lambda _: b"second", write=_refuse))
        yield Service(UUID(TEMPERATURE_SERVICE), [self.temperature])
        yield Service(UUID(COMMAND_SERVICE), [command, self.acknowledgement, forbidden, long, first, second])

    def value(self) -> bytes:
        """Return the present temperature as the characteristic's value."""
        return struct.pack("<h", self.hundredths)

    def _read(self, value: Any) -> Any:
        def read(_: Any) -> bytes:
            if self.mute:
                raise ATT_Error(ErrorCode.UNLIKELY_ERROR)
            return bytes(value())

        return read


class Peripheral:
    """A device with the characteristics of `gatt`, whose temperature changes every `period_s`.

    Commands are written to `COMMAND`: after `ack:x` it notifies `x`; `drop` ends the connection; after `vanish:s` it is out of
    reach for s seconds; others do nothing. `links` counts connections. `gatt.mute`, `radio.numb` and `radio.aloof` are faults
    (see `SensorGatt`, `RadioController`); while `gatt.mute`, it does not notify either. `radio` is there after `start`.
    """

    radio: RadioController

    def __init__(self, name: str, address: str, *, period_s: float = 0.2) -> None:
        self.name = name
        self.address = address
        self.gatt = SensorGatt()
        self.links = 0
        self._period_s = period_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, air: Air) -> None:
        """Start to advertise."""
        self.radio, self._device = await make_device(air, self.name, self.address, 100.0)
        self._device.add_services(list(self.gatt.services(lambda connection, value: self._do(self._obey(connection, value)))))
        self._device.on("connection", self._connected)
        await self.advertise()
        self._do(self._measure())

    async def advertise(self) -> None:
        """Advertise the present name and the service."""
        uuid = struct.pack("<H", int(TEMPERATURE_SERVICE, 16))
        name = (_TYPE.COMPLETE_LOCAL_NAME, self.name.encode())
        self._device.advertising_data = structures(name, (_TYPE.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS, uuid))
        await self._device.stop_advertising()
        await self._device.start_advertising()

    @property
    def linked(self) -> bool:
        """True while a central is connected."""
        return bool(self._device.connections)

    async def ended(self) -> None:
        """Return once no central is connected."""
        while self.linked:
            ended = asyncio.get_running_loop().create_future()
            self._device.connections[next(iter(self._device.connections))].once("disconnection", ended.set_result)
            await ended

    async def until_linked(self) -> None:
        """Return once a central is connected."""
        while not self.linked:
            connected = asyncio.get_running_loop().create_future()
            self._device.once("connection", connected.set_result)
            await connected

    async def drop(self) -> None:
        """End all connections from the device's side."""
        for connection in list(self._device.connections.values()):
            await connection.disconnect()

    async def vanish(self, seconds: float) -> None:
        """Be out of reach for this time."""
        self.radio.lose_radio()
        await asyncio.sleep(seconds)
        self.radio.silent = False
        await self._device.start_advertising()

    def stop(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()

    def _connected(self, connection: Any) -> None:
        self.links += 1
        connection.on("disconnection", lambda _: self._do(self._advertise_again()))

    async def _obey(self, connection: Any, command: bytes) -> None:
        word, _, rest = command.partition(b":")
        if word == b"ack":
            await self._device.notify_subscribers(self.gatt.acknowledgement, rest)
        elif word == b"drop":
            await connection.disconnect()
        elif word == b"vanish":
            await asyncio.sleep(0)  # the write response goes first
            await self.vanish(float(rest))

    async def _advertise_again(self) -> None:
        if not self.radio.silent:
            await self._device.start_advertising()

    async def _measure(self) -> None:
        """Change the temperature periodically, and notify subscribers."""
        while True:
            await asyncio.sleep(self._period_s)
            self.gatt.hundredths = 2150 + (self.gatt.hundredths - 2149) % 1000
            if self._device.connections and not self.gatt.mute:
                try:
                    await self._device.notify_subscribers(self.gatt.temperature, self.gatt.value())
                except Exception:  # noqa: BLE001 - bumble raises many kinds of errors while a connection ends
                    _log.debug("%s cannot notify", self.name, exc_info=True)

    def _do(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _refuse(_: Any, __: bytes) -> None:
    raise ATT_Error(ErrorCode.WRITE_NOT_PERMITTED)
