"""Profile `zigbee2mqtt`: one topic for each Zigbee device, with its friendly name.

| topic below the base topic | result |
|---|---|
| `{name}` | telemetry of the device |
| `{name}/{attribute}` (`output: attribute`) | telemetry of the device, if the name is known and the payload is no object |
| `{name}/availability` | an event `availability` of the device, lane alarm |
| `{name}/set...`, `{name}/get...` | ignored: commands of other clients |
| `bridge/state` | an event `availability` of the bridge itself, lane alarm |
| `bridge/event` | an event `event` of the bridge itself, lane alarm |
| `bridge/devices` | the names of the devices; an event `device` for each whose description has changed |
| `bridge/logging` | ignored |
| `bridge/...`, all others | ignored |

A friendly name may change at any time, and may hold characters that an identifier may not. So the device's identifier is the
IEEE address that `bridge/devices` gives for the name, or else the escaped name (groups have no address).

Retained telemetry is a repeat or of unknown age, and ignored. A retained availability or `bridge/devices` is current, and read.

`last_seen`, the time of the device's last message to the bridge, is the event's own time and its evidence.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fogline.address import device_identifier, is_identifier, shown
from fogline.documents.document_error import explained
from fogline.documents.media_type import JSON
from fogline.errors import Poison
from fogline.events.device_report import AVAILABILITY, DESCRIPTION, MAX_TEXT, DeviceDescription, encode_description
from fogline.events.event import Arrival, Lane, parse_rfc3339
from fogline_edge.profiles.names import MAX_NAMES, Names
from fogline_edge.profiles.profile import ADAPTER, BrokerMessage, Described, Filter, Ignored, IgnoreReason, Learned, Reading

_DEVICES = "bridge/devices"
_BRIDGE = "bridge/"
_BRIDGE_EVENTS = {"bridge/state": AVAILABILITY, "bridge/event": "event"}
_COMMANDS = {"set", "get"}
_SUFFIX = "/" + AVAILABILITY
_MAX_TIME_NS = 2**63 - 1


class ZigbeeDevice(msgspec.Struct, frozen=True):
    """An entry of `bridge/devices`."""

    ieee_address: str
    friendly_name: str
    type: Any = None
    power_source: Any = None
    software_build_id: Any = None
    model_id: Any = None
    description: Any = None  # by its owner
    definition: Any = None

    @property
    def is_coordinator(self) -> bool:
        """True for the adapter itself."""
        return bool(self.type == "Coordinator")

    @property
    def about(self) -> DeviceDescription:
        """The description of the device, for the registry."""
        known = self.definition if isinstance(self.definition, dict) else {}
        return DeviceDescription(
            name=self.friendly_name[:MAX_TEXT],
            vendor=_text(known.get("vendor")),
            model=_text(known.get("model")) or _text(self.model_id),
            description=_text(self.description) or _text(known.get("description")),
            power_source=_text(self.power_source),
            firmware=_text(self.software_build_id),
        )


_devices = msgspec.json.Decoder(list[ZigbeeDevice])


class Zigbee2Mqtt:
    """Reads the messages of one Zigbee2MQTT.

    From before a restart: `names`, IEEE addresses by friendly name, and `digests` of the descriptions of devices.
    """

    def __init__(self, base_topic: str, names: Mapping[str, str], digests: Mapping[str, bytes] | None = None) -> None:
        self._prefix = f"{base_topic}/"
        self._bridge = device_identifier(base_topic, "base_topic")
        self._names = Names(names)
        self._digests = dict(digests or {})

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filter of the names first, so that they are known when telemetry arrives."""
        return Filter(self._prefix + _DEVICES, always=True), Filter(self._prefix + "#")

    def read(self, message: BrokerMessage) -> Reading:
        """See `Profile.read`."""
        topic = message.channel
        if not topic.startswith(self._prefix):
            raise Poison("bad-topic", f"topic {shown(topic)} is not below {self._prefix}")
        path = topic[len(self._prefix) :]
        if not message.payload:
            return Ignored(IgnoreReason.EMPTY)
        return self._of_bridge(path, message) if path.startswith(_BRIDGE) else self._of_device(path, message)

    def _of_bridge(self, path: str, message: BrokerMessage) -> Reading:
        if path == _DEVICES:
            return self._learn(decode_devices(message.payload))
        kind = _BRIDGE_EVENTS.get(path)
        if kind is None:
            return Ignored(IgnoreReason.LOGGING if path == "bridge/logging" else IgnoreReason.BRIDGE)
        if message.retained and kind != AVAILABILITY:
            return Ignored(IgnoreReason.RETAINED)
        return message.arrival(self._bridge, Lane.ALARM, kind)

    def _learn(self, devices: Sequence[ZigbeeDevice]) -> Learned:
        """Return the names that have changed, and the devices whose descriptions have."""
        changed = self._names.learn({each.friendly_name: each.ieee_address for each in devices})
        listed = [each for each in devices if not each.is_coordinator and is_identifier(each.ieee_address)][:MAX_NAMES]
        described = tuple(found for each in listed if (found := self._describe(each)) is not None)
        gone = frozenset(self._digests.keys() - {each.ieee_address for each in listed})
        for device in gone:
            del self._digests[device]
        return Learned(changed, described, gone)

    def _describe(self, device: ZigbeeDevice) -> Described | None:
        """Return the event that describes a device, if the last one does not say the same."""
        data = encode_description(device.about)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if self._digests.get(device.ieee_address) == digest:
            return None
        self._digests[device.ieee_address] = digest
        arrival = Arrival(
            device=device.ieee_address,
            channel=self._prefix + _DEVICES,
            lane=Lane.TELEMETRY,
            type=DESCRIPTION,
            content_type=JSON,
            data=data,
            adapter=ADAPTER,
        )
        return Described(arrival, digest)

    def _of_device(self, path: str, message: BrokerMessage) -> Reading:
        if path not in self._names:
            if path.endswith(_SUFFIX):
                return message.arrival(self._names.identifier(path.removesuffix(_SUFFIX)), Lane.ALARM, AVAILABILITY)
            if not _COMMANDS.isdisjoint(path.split("/")[1:]):
                return Ignored(IgnoreReason.COMMAND)
        if message.retained:
            return Ignored(IgnoreReason.RETAINED)
        state = message.json_object
        name = path if state is not None else self._name_in(path)
        time_ns = _time_ns(state.get("last_seen")) if state else None
        return message.arrival(self._names.identifier(name), Lane.TELEMETRY, "telemetry", time_ns=time_ns)

    def _name_in(self, path: str) -> str:
        """Return the longest known name that `path` begins with, or else `path` itself."""
        name = path
        while name and name not in self._names:
            name = name.rpartition("/")[0]
        return name or path


def _text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def decode_devices(payload: bytes) -> list[ZigbeeDevice]:
    """Return the devices of `bridge/devices`. Raises `Poison('malformed')`."""
    try:
        return _devices.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"bridge/devices is not a list of devices: {explained(error, list[ZigbeeDevice])}") from None


def _time_ns(last_seen: Any) -> int | None:
    """Return `last_seen` in ns, given as RFC 3339 or in ms since 1970. Any other form gives None."""
    match last_seen:
        case bool():
            return None
        case int() | float() if 0 <= last_seen <= _MAX_TIME_NS:
            time_ns = round(last_seen) * 1_000_000
        case str():
            try:
                time_ns = parse_rfc3339(last_seen)
            except (ValueError, OverflowError):
                return None
        case _:
            return None
    return time_ns if 0 <= time_ns <= _MAX_TIME_NS else None
