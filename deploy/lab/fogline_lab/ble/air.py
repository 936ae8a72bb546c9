"""Advertisers: devices with the payloads of real ones, to which no one can connect."""

import struct

from bumble.core import AdvertisingData
from bumble.device import AdvertisingType, Device, DeviceConfiguration
from bumble.hci import Address

from fogline_lab.ble.controller import Air, RadioController

_TYPE = AdvertisingData.Type
_FLAGS = (_TYPE.FLAGS, b"\x06")
_SERVICE_DATA, _MANUFACTURER = _TYPE.SERVICE_DATA_16_BIT_UUID, _TYPE.MANUFACTURER_SPECIFIC_DATA

BTHOME = (_SERVICE_DATA, b"\xd2\xfc" + bytes.fromhex("4002CA0903BF13"))
"""bthome.io/format: 25.06 degrees, 50.55 %."""
RUUVITAG = (_MANUFACTURER, bytes.fromhex("99040512FC5394C37C0004FFFC040CAC364200CDCBB8334C884F"))
"""Ruuvi's own test vector for format 5: 24.3 degrees, sequence 205."""
IBEACON = (_MANUFACTURER, bytes.fromhex("4c000215E2C56DB5DFFB48D2B060D0F5A71096E000010002C5"))
EDDYSTONE = (_SERVICE_DATA, b"\xaa\xfe" + bytes.fromhex("20000bb815800000000a00000064"))
"""Eddystone-TLM: 3 V, 21.5 degrees."""


def bthome(packet_id: int, hundredths: int) -> tuple[int, bytes]:
    """Return a BTHome v2 payload: a packet id and a temperature in hundredths of a degree."""
    return _SERVICE_DATA, b"\xd2\xfc\x40" + struct.pack("<BBBh", 0, packet_id % 256, 2, hundredths)


def structures(*found: tuple[int, bytes]) -> bytes:
    """Return AD structures: the flags and those given."""
    return bytes(AdvertisingData([_FLAGS, *found]))


async def make_device(air: Air, name: str, address: str, interval_ms: float) -> tuple[RadioController, Device]:
    """Power on a device with a controller of its own on `air`."""
    controller = RadioController(name, air)
    settings = DeviceConfiguration(
        name=name, address=Address(address), advertising_interval_min=interval_ms, advertising_interval_max=interval_ms
    )
    device = Device.from_config_with_hci(settings, controller, controller)
    await device.power_on()
    return controller, device


class Broadcaster:
    """Advertises the same payload until `say` replaces it. It is not connectable."""

    def __init__(self, address: str, payload: tuple[int, bytes], *, interval_ms: float = 100.0) -> None:
        self.address = address
        self._payload = payload
        self._interval_ms = interval_ms

    async def start(self, air: Air) -> None:
        """Start to advertise."""
        self._controller, device = await make_device(air, self.address, self.address, self._interval_ms)
        device.advertising_data = structures(self._payload)
        await device.start_advertising(advertising_type=AdvertisingType.UNDIRECTED)

    def say(self, payload: tuple[int, bytes]) -> None:
        """Advertise another payload, at once and from now on."""
        self._payload = payload
        advertiser = self._controller.le_legacy_advertiser
        advertiser.advertising_data = structures(payload)
        advertiser.send_advertising_data()

    @property
    def silent(self) -> bool:
        """True while it is out of reach."""
        return self._controller.silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._controller.silent = silent
