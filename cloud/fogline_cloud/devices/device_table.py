"""All devices of a tenant, in memory: the records of `fogline.devices` in the order of Kafka. No IO.

One thread applies records. Any thread may read: a device is replaced as a whole.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from fogline.documents.json_document import read_document
from fogline.events.device_report import DeviceDescription
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.devices import record
from fogline_cloud.devices.desired import DesiredOutcome, DesiredRecord, ReportedState, decode_outcome
from fogline_cloud.devices.record import DeviceAbout, DeviceRecord, DeviceSighting, decode_device, decode_sighting, read_key

T = TypeVar("T")

MAX_DEVICES = 250_000
"""Devices to remember. A bridge adds no more to the topic."""
MAX_LEARNT_A_GATEWAY = 20_000
"""Devices that one gateway may add by their events."""
MAX_GATEWAYS = 8
"""Gateways to remember of a device: the last ones."""

_log = logging.getLogger("fogline.devices")
_log.addFilter(LogThrottle())


class DeviceEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device. `record` is `None` if nobody has set it.

    `sightings`, `outcomes`, `reports` and `abouts` are by gateway, the newest first.
    """

    name: str
    record: DeviceRecord | None = None
    sightings: tuple[tuple[str, DeviceSighting], ...] = ()
    desired: DesiredRecord | None = None
    outcomes: tuple[tuple[str, DesiredOutcome], ...] = ()
    reports: tuple[tuple[str, ReportedState], ...] = ()
    abouts: tuple[tuple[str, DeviceAbout], ...] = ()

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
        """The firmware that the device named last, or else its program."""
        named = next((sighting.firmware for _, sighting in self.sightings if sighting.firmware), "")
        return named or (self.description.firmware if self.description is not None else "")

    @property
    def description(self) -> DeviceDescription | None:
        """What a program at a gateway said last of the device."""
        return next((about.description for _, about in self.abouts if about.description is not None), None)

    @property
    def is_listed(self) -> bool:
        """True if somebody has set the device, or a program at a gateway has introduced it."""
        return self.record is not None or self.description is not None

    @property
    def reported(self) -> ReportedState | None:
        """The state that the device reported last."""
        return self.reports[0][1] if self.reports else None

    @property
    def outcome(self) -> DesiredOutcome | None:
        """The end of the command that was sent last for the desired state; `None` while it is under way."""
        if self.desired is None:
            return None
        found = next((each for gateway, each in self.outcomes if gateway == self.desired.sent_gateway), None)
        return found if found is not None and found.command == self.desired.sent_id else None

    @property
    def desired_state(self) -> str:
        """The progress of the newest version: `WAITING`, `SENT`, or the end of its command; "" without a desired state."""
        if self.desired is None:
            return ""
        if not self.desired.sent_id or self.desired.sent_version != self.desired.version:
            return "WAITING"
        return self.outcome.state.value if self.outcome is not None else "SENT"

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
        match found.kind:
            case record.DEVICE:
                device = replace(device, record=decode_device(value) if value else None)
            case record.DESIRED:
                wanted = read_document(value, DesiredRecord, "a desired state") if value else None
                device = replace(device, desired=wanted)
            case record.SEEN:
                sighting = decode_sighting(value) if value else None
                device = replace(device, sightings=_newest(device.sightings, found.gateway, sighting, _seen_ms))
            case record.OUTCOME:
                outcome = decode_outcome(value) if value else None
                device = replace(device, outcomes=_newest(device.outcomes, found.gateway, outcome, _changed_ms))
            case record.ABOUT:
                about = read_document(value, DeviceAbout, "a report about a device") if value else None
                device = replace(device, abouts=_newest(device.abouts, found.gateway, about, _changed_ms))
            case _:
                state = read_document(value, ReportedState, "a reported state") if value else None
                device = replace(device, reports=_newest(device.reports, found.gateway, state, _changed_ms))
        self._put(device)
        return found.device

    def apply_or_log(self, key: bytes, value: bytes) -> str:
        """Do as `apply`, but log a record that cannot be read, and return ""."""
        try:
            return self.apply(key, value)
        except Exception as error:  # noqa: BLE001 - one record must not stop the registry, at this bridge and at every other
            _log.warning("a record of a device is skipped: %s", str(error) or type(error).__name__)
            return ""

    def _put(self, device: DeviceEntry) -> None:
        former = self._devices.get(device.name)
        if former is None and len(self._devices) >= MAX_DEVICES:
            self.left_out += 1
            return
        self._count(former, -1)
        kept = (device.record, device.sightings, device.desired, device.outcomes, device.reports, device.abouts)
        if not any(kept):
            self._devices.pop(device.name, None)
        else:
            self._devices[device.name] = device
            self._count(device, 1)

    def _count(self, device: DeviceEntry | None, sign: int) -> None:
        if device is not None and device.record is None and (device.sightings or device.abouts):
            gateway = (device.sightings or device.abouts)[0][0]
            self._learnt[gateway] += sign
            if not self._learnt[gateway]:
                del self._learnt[gateway]


def _newest(
    former: tuple[tuple[str, T], ...], gateway: str, value: T | None, time_ms: Callable[[T], int]
) -> tuple[tuple[str, T], ...]:
    others = [each for each in former if each[0] != gateway]
    if value is not None:
        others.append((gateway, value))
    return tuple(sorted(others, key=lambda each: -time_ms(each[1]))[:MAX_GATEWAYS])


def _seen_ms(sighting: DeviceSighting) -> int:
    return sighting.seen_ms


def _changed_ms(value: DesiredOutcome | ReportedState | DeviceAbout) -> int:
    return value.changed_ms
