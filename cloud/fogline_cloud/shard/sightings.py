"""Notes which gateways have events of which devices, and when, without a Kafka record for each event.

A device and its gateway get a record at most once in `devices.seen_every_s`. The table of devices, which has the records of
all bridges, says when the last one was; what this shard has written and the table does not have yet is kept here, up to `MOST`.

A device is seen when its gateway got an event from the device itself. The time of the upload says nothing, because a gateway
may have been offline for days; and the gateway's own report on a command that the device never got is no sign of the device.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from fogline.commands.command import CommandState
from fogline.events.codec import Batch, EventObject
from fogline.events.device_report import AVAILABILITY, DESCRIPTION, read_availability, read_description
from fogline.events.event import Lane, TimeQuality, parse_rfc3339
from fogline_cloud.devices.desired import ReportedState, read_reported
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import MAX_FIRMWARE, DeviceAbout, DeviceSighting
from fogline_cloud.settings import DeviceSettings, Learn

MOST = 5_000
"""Sightings to remember until the table has them. Without one, the next event of the device is noted once more."""
_FIRMWARE = "firmware"
_REPORTED = "reported"
_IS_REPORTED = "reported=true"
_MAX_PROPERTIES = 32
_BY_DEVICE = (None, CommandState.SUCCEEDED.value, CommandState.FAILED.value)
"""States of the commands on lane `reply` that a device itself has ended."""


class Sightings:
    """The sightings that one ownership of a shard writes. Used by the shard's thread.

    `lanes`: those whose last events are noted for themselves too. A batch is of one lane.
    """

    def __init__(self, table: DeviceTable, settings: DeviceSettings, lanes: Container[str] = ()) -> None:
        self.table = table
        self._learn = settings.learn
        self._lanes = lanes
        self._every_ms = int(settings.seen_every_s * 1000)
        self._written: OrderedDict[tuple[str, str], DeviceSighting] = OrderedDict()
        self._abouts: OrderedDict[tuple[str, str], DeviceAbout] = OrderedDict()

    def due(self, gateway: str, batch: Batch, tenant: str, now_ms: int) -> Iterator[tuple[str, DeviceSighting]]:
        """Yield a sighting for each device of a gateway's batch whose last one is too old. `now_ms`: the bridge's time."""
        if self._learn is Learn.NONE or not batch.objects:
            return
        newest_ms = _received_ms(batch.objects[-1], now_ms)  # a batch is in the order in which the gateway stored it
        lane = batch.objects[-1].lane.value if batch.objects[-1].lane in self._lanes else ""
        for device in {device for own, device in batch.devices.values() if own == tenant and device != gateway}:
            if not self._is_due(device, gateway, newest_ms, now_ms, lane):
                continue
            own_events = [each for each in batch.objects if batch.devices[each.source][1] == device and _is_of_device(each)]
            seen_ms = _received_ms(own_events[-1], now_ms) if own_events else 0
            if own_events and self._is_due(device, gateway, seen_ms, now_ms, lane):
                properties = (each.properties for each in own_events)
                yield device, self._note(device, gateway, properties, (seen_ms, now_ms), lane)

    def due_of(self, device: str, properties: str | None, now_ms: int) -> DeviceSighting | None:
        """Return a sighting for a device that speaks AMQP itself, if its last one is too old."""
        if self._learn is Learn.NONE or not self._is_due(device, "", now_ms, now_ms):
            return None
        return self._note(device, "", [properties], (now_ms, now_ms))

    def last_about(self, device: str, gateway: str) -> DeviceAbout | None:
        """Return what was written last about a device: it may not be in the table yet."""
        written = self._abouts.get((device, gateway))
        known = self.table.get(device)
        return written or next((each for name, each in known.abouts if name == gateway), None) if known is not None else written

    def may_note(self, device: str, gateway: str, about: DeviceAbout) -> bool:
        """Return True if something about this device may be written. A description introduces the device."""
        if self._learn is Learn.NONE:
            return False
        known = self.table.get(device)
        if known is not None and (known.is_listed or self._learn is Learn.ALL):
            return True
        return (about.description is not None or self._learn is Learn.ALL) and self.table.room_for(gateway)

    def note_about(self, device: str, gateway: str, about: DeviceAbout) -> None:
        """Remember what was written about a device."""
        self._abouts[device, gateway] = about
        self._abouts.move_to_end((device, gateway))
        if len(self._abouts) > MOST:
            self._abouts.popitem(last=False)

    def forget(self, device: str, gateway: str) -> None:
        """Forget what was written about a device."""
        self._written.pop((device, gateway), None)
        self._abouts.pop((device, gateway), None)

    def _is_due(self, device: str, gateway: str, seen_ms: int, now_ms: int, lane: str = "") -> bool:
        known = self.table.get(device)
        if known is None or not known.is_listed:
            if self._learn is Learn.REGISTERED:
                return False
            if known is None and not self.table.room_for(gateway):
                return False
        found = self._last(device, gateway)
        last_ms = (found.lanes or {}).get(lane, 0) if lane else found.seen_ms
        # A last time in the future comes from a wrong clock.
        return seen_ms >= last_ms + self._every_ms or last_ms > now_ms

    def _last(self, device: str, gateway: str) -> DeviceSighting:
        """Return the last sighting: what this shard has written may not be in the table yet."""
        known = self.table.get(device)
        found = known.seen_by(gateway) if known is not None else None
        written = self._written.get((device, gateway))
        return max((each for each in (written, found) if each is not None), key=_seen_last, default=_NEVER)

    def _note(
        self, device: str, gateway: str, properties: Iterable[str | None], times: tuple[int, int], lane: str = ""
    ) -> DeviceSighting:
        """Note a sighting. `times`: of the device's last event, and the present one."""
        found, (seen_ms, now_ms) = self._last(device, gateway), times
        firmware = next(filter(None, map(_firmware_of, properties)), "") or found.firmware
        lanes = {**(found.lanes or {}), lane: seen_ms} if lane else found.lanes
        last_ms = seen_ms if found.seen_ms > now_ms else max(seen_ms, found.seen_ms)  # another lane may have been later
        noted = DeviceSighting(seen_ms=last_ms, firmware=firmware, lanes=lanes)
        self._written[device, gateway] = noted
        self._written.move_to_end((device, gateway))
        if len(self._written) > MOST:
            self._written.popitem(last=False)
        return noted


_NEVER = DeviceSighting(seen_ms=0)


def _seen_last(sighting: DeviceSighting) -> int:
    return sighting.seen_ms


def _is_of_device(event: EventObject) -> bool:
    if event.type in (DESCRIPTION, AVAILABILITY):  # it is of the program that speaks for the device
        return False
    return event.lane is not Lane.REPLY or event.commandstate in _BY_DEVICE


def _received_ms(event: EventObject, now_ms: int) -> int:
    """Return when the gateway got an event; `now_ms` if its clock was not known to be right, or is ahead."""
    if event.timequality is TimeQuality.UNSYNCED:
        return now_ms
    return min(now_ms, max(0, parse_rfc3339(event.recordedtime) // 1_000_000))


def reported_states(table: DeviceTable, batch: Batch, tenant: str, now_ms: int) -> Iterator[tuple[str, ReportedState]]:
    """Yield the state that a device with a desired state reports in a gateway's batch, if it is not the one that is known.

    Such an event has type `reported`, or the property `reported=true`.
    """
    found: dict[str, dict[str, Any]] = {}
    for event, data in zip(batch.objects, batch.data, strict=True):
        if event.type == _REPORTED or (event.properties is not None and _IS_REPORTED in event.properties):
            own, device = batch.devices[event.source]
            known = table.get(device) if own == tenant else None
            if known is not None and known.desired is not None and (state := read_reported(data)) is not None:
                found[device] = state
    for device, state in found.items():
        known = table.get(device)
        if known is None or known.reported is None or known.reported.reported != state:
            yield device, ReportedState(reported=state, changed_ms=now_ms)


def abouts(sightings: Sightings, gateway: str, batch: Batch, tenant: str, now_ms: int) -> Iterator[tuple[str, DeviceAbout]]:
    """Yield what a program at a gateway says of its devices in a batch, if it is news.

    A description adds its device to the registry, unless nothing is learnt.
    """
    found: dict[str, DeviceAbout] = {}
    for event, data in zip(batch.objects, batch.data, strict=True):
        if event.type not in (DESCRIPTION, AVAILABILITY):
            continue
        own, device = batch.devices[event.source]
        if own != tenant or device == gateway:
            continue
        former = found.get(device) or sightings.last_about(device, gateway)
        about = _about(event, data, former, now_ms)
        if about is not None and about != former and sightings.may_note(device, gateway, about):
            found[device] = about
    for device, about in found.items():
        sightings.note_about(device, gateway, about)
        yield device, about


def _about(event: EventObject, data: bytes, former: DeviceAbout | None, now_ms: int) -> DeviceAbout | None:
    known = former or DeviceAbout(changed_ms=now_ms)
    if event.type == DESCRIPTION:
        description = read_description(data)
        if description is None or description == known.description:
            return former
        return msgspec.structs.replace(known, changed_ms=now_ms, description=description)
    online = read_availability(data)
    if online is None or online is known.online:
        return former
    return msgspec.structs.replace(known, changed_ms=now_ms, online=online, online_ms=_received_ms(event, now_ms))


def _firmware_of(properties: str | None) -> str:
    if properties is None or _FIRMWARE not in properties:
        return ""
    try:
        found = dict(parse_qsl(properties, max_num_fields=_MAX_PROPERTIES)).get(_FIRMWARE, "")
    except ValueError:
        return ""
    return found if len(found) <= MAX_FIRMWARE and found.isprintable() else ""
