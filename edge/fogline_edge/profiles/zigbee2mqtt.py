"""Profile `zigbee2mqtt`: one topic for each Zigbee device, with its friendly name.

| topic below the base topic | result |
|---|---|
| `{name}` | telemetry of the device |
| `{name}/{attribute}` (`output: attribute`) | telemetry of the device, if the name is known and the payload is no object |
| `{name}/availability` | an event `availability` of the device, lane alarm |
| `{name}/set...`, `{name}/get...` | ignored: commands of other clients |
| `bridge/state` | an event `availability` of the bridge itself, lane alarm |
| `bridge/event` | an event `event` of the bridge itself, lane alarm |
| `bridge/devices` | the names of the devices |
| `bridge/logging` | ignored |
| `bridge/...`, all others | ignored |

A friendly name may change at any time, and may hold characters that an identifier may not. So the device's identifier is the
IEEE address that `bridge/devices` gives for the name, or else the escaped name (groups have no address).

Retained telemetry is a repeat or of unknown age, and ignored. A retained availability or `bridge/devices` is current, and read.

`last_seen`, the time of the device's last message to the bridge, is the event's own time and its evidence.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fogline.address import device_identifier, shown
from fogline.documents.document_error import explained
from fogline.errors import Poison
from fogline.events.event import Lane, parse_rfc3339
from fogline_edge.profiles.names import Names
from fogline_edge.profiles.profile import AVAILABILITY, BrokerMessage, Filter, Ignored, IgnoreReason, Learned, Reading

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
    type: str | None = None

    @property
    def is_coordinator(self) -> bool:
        """True for the adapter itself."""
        return self.type == "Coordinator"


_devices = msgspec.json.Decoder(list[ZigbeeDevice])


class Zigbee2Mqtt:
    """Reads the messages of one Zigbee2MQTT. `names`: IEEE addresses by friendly name, from before a restart."""

    def __init__(self, base_topic: str, names: Mapping[str, str]) -> None:
        self._prefix = f"{base_topic}/"
        self._bridge = device_identifier(base_topic, "base_topic")
        self._names = Names(names)

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
            devices = decode_devices(message.payload)
            return Learned(self._names.learn({each.friendly_name: each.ieee_address for each in devices}))
        kind = _BRIDGE_EVENTS.get(path)
        if kind is None:
            return Ignored(IgnoreReason.LOGGING if path == "bridge/logging" else IgnoreReason.BRIDGE)
        if message.retained and kind != AVAILABILITY:
            return Ignored(IgnoreReason.RETAINED)
        return message.arrival(self._bridge, Lane.ALARM, kind)

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
