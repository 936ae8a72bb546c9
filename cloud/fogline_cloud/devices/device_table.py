"""All devices of a tenant, in memory: the records of `fogline.devices` in the order of Kafka. No IO.

One thread applies records. Any thread may read: a device is replaced as a whole.
"""

import logging
from collections import Counter
from collections.abc import Iterator

import msgspec

from fogline.errors import Poison
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.devices.record import (
    DeviceRecord,
    DeviceSighting,
    decode_device,
    decode_sighting,
    device_key,
    read_key,
)

MAX_DEVICES = 250_000
"""Devices to remember. A bridge adds no more to the topic."""
MAX_LEARNT_A_GATEWAY = 20_000
"""Devices that one gateway may add by their events."""
MAX_GATEWAYS = 8
"""Gateways to remember of a device: the last ones."""

_log = logging.getLogger("fogline.devices")
_log.addFilter(LogThrottle())


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device. `record` is `None` if it is only known by its events. `sightings`: by gateway, the newest first."""

    name: str
    record: DeviceRecord | None = None
    sightings: tuple[tuple[str, DeviceSighting], ...] = ()

    @property
    def type(self) -> str:
        """The type of the device, "" if nobody set it."""
        return self.record.type if self.record is not None else ""

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the device."""
        return self.record.tags if self.record is not None else {}

    @property
    def gateways(self) -> list[str]:
        """The gateways that had events of the device, the newest first. "" stands for an AMQP connection of its own."""
        return [gateway for gateway, _ in self.sightings]

    @property
    def seen_ms(self) -> int | None:
        """The time of its last event, to the precision of `devices.seen_every_s`."""
        return self.sightings[0][1].seen_ms if self.sightings else None

    @property
    def firmware(self) -> str:
        """The firmware that the device named last."""
        return next((sighting.firmware for _, sighting in self.sightings if sighting.firmware), "")

    def seen_by(self, gateway: str) -> DeviceSighting | None:
        """Return the sighting of one gateway."""
        return next((sighting for name, sighting in self.sightings if name == gateway), None)


class DeviceTable:
    """Devices by name. `left_out` counts records of devices beyond `MAX_DEVICES`."""

    def __init__(self) -> None:
        self.left_out = 0
        self._devices: dict[str, DeviceEntry] = {}
        self._learnt: Counter[str] = Counter()  # devices without a record, by the gateway of their last events

    def __len__(self) -> int:
        return len(self._devices)

    def __iter__(self) -> Iterator[DeviceEntry]:
        return iter(list(self._devices.values()))

    def get(self, name: str) -> DeviceEntry | None:
        """Return a device, if it is known."""
        return self._devices.get(name)

    def room_for(self, gateway: str) -> bool:
        """Return True if one more device may be learnt from the events of a gateway."""
        return len(self._devices) < MAX_DEVICES and self._learnt[gateway] < MAX_LEARNT_A_GATEWAY

    def apply(self, key: bytes, value: bytes) -> str:
        """Take a record from Kafka; an empty value deletes its key. Return the name of the device. Raises `Poison`."""
        found = read_key(key)
        device = self._devices.get(found.device) or DeviceEntry(name=found.device)
        if found == device_key(found.device):
            device = msgspec.structs.replace(device, record=decode_device(value) if value else None)
        else:
            others = [each for each in device.sightings if each[0] != found.gateway]
            if value:
                others.append((found.gateway, decode_sighting(value)))
            newest = sorted(others, key=lambda each: -each[1].seen_ms)[:MAX_GATEWAYS]
            device = msgspec.structs.replace(device, sightings=tuple(newest))
        self._put(device)
        return found.device

    def apply_or_log(self, key: bytes, value: bytes) -> str:
        """Do as `apply`, but log a record that cannot be read, and return ""."""
        try:
            return self.apply(key, value)
        except Poison as error:
            _log.warning("a record of a device is skipped: %s", error)
            return ""

    def _put(self, device: DeviceEntry) -> None:
        former = self._devices.get(device.name)
        if former is None and len(self._devices) >= MAX_DEVICES:
            self.left_out += 1
            return
        self._count(former, -1)
        if device.record is None and not device.sightings:
            self._devices.pop(device.name, None)
        else:
            self._devices[device.name] = device
            self._count(device, 1)

    def _count(self, device: DeviceEntry | None, sign: int) -> None:
        if device is not None and device.record is None and device.sightings:
            gateway = device.sightings[0][0]
            self._learnt[gateway] += sign
            if not self._learnt[gateway]:
                del self._learnt[gateway]
