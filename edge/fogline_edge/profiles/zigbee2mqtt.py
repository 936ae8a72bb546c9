"""Zigbee2MQTT: one topic for each Zigbee device, named by its friendly name.

| topic below the base topic | becomes |
|---|---|
| `{name}` | telemetry of the device |
| `{name}/{attribute}` (`output: attribute`) | telemetry of the device, if the name is known and the payload no object |
| `{name}/availability` | an event `availability` of the device, lane alarm |
| `{name}/set...`, `{name}/get...` | nothing: commands of others |
| `bridge/state` | an event `availability` of the bridge itself, lane alarm |
| `bridge/event` | an event `event` of the bridge itself, lane alarm |
| `bridge/devices` | the names of the devices |
| `bridge/logging` | nothing |
| `bridge/...`, all others | nothing |

A friendly name can be changed at any time, and may hold what an identifier may not; the IEEE address can do neither. So the
device is the IEEE address that `bridge/devices` gives for the name, else the name escaped (groups have no address).

Retained readings are passed over: they come because of a subscription, and are what was stored before or of unknown age.
A retained availability is taken, because it is what holds now, and so is `bridge/devices`.

`last_seen` (when the bridge last heard the device) is the event's own time, and its evidence.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fogline.address import shown
from fogline.errors import Poison
from fogline.event import Arrival, Lane, parse_rfc3339
from fogline.identity import DeviceTime
from fogline_edge.profiles.names import Names, escape
from fogline_edge.profiles.profile import (
    ADAPTER,
    AVAILABILITY,
    Filter,
    Ignored,
    Learned,
    Message,
    Reading,
    Why,
    check_topic,
    content_type_of,
    decode_object,
)

_DEVICES = "bridge/devices"
_BRIDGE = "bridge/"
_BRIDGE_EVENTS = {"bridge/state": AVAILABILITY, "bridge/event": "event"}
_COMMANDS = {"set", "get"}
_SUFFIX = "/" + AVAILABILITY
_MAX_TIME_NS = 2**63 - 1


class _Device(msgspec.Struct):
    """What is read of an entry of `bridge/devices`."""

    ieee_address: str
    friendly_name: str


_devices = msgspec.json.Decoder(list[_Device])


class Zigbee2Mqtt:
    """Reads what one Zigbee2MQTT publishes below `base_topic`. `names`: friendly name -> IEEE address, as told before."""

    def __init__(self, base_topic: str, names: Mapping[str, str]) -> None:
        self._prefix = f"{base_topic}/"
        self._bridge = escape(base_topic)
        self._names = Names(names)

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The names first, so that the readings that follow have them."""
        return Filter(self._prefix + _DEVICES, always=True), Filter(self._prefix + "#")

    def read(self, message: Message) -> Reading:
        """See `Profile.read`."""
        topic = check_topic(message.topic)
        if not topic.startswith(self._prefix):
            raise Poison("bad-topic", f"topic {shown(topic)} is not below {self._prefix}")
        path = topic[len(self._prefix) :]
        if not message.payload:
            return Ignored(Why.EMPTY)
        if path.startswith(_BRIDGE):
            return self._of_bridge(path, message)
        return self._of_device(path, message)

    def _of_bridge(self, path: str, message: Message) -> Reading:
        if path == _DEVICES:
            return Learned(self._names.learn(_decode_names(message.payload)))
        kind = _BRIDGE_EVENTS.get(path)
        if kind is None:
            return Ignored(Why.LOGGING if path == "bridge/logging" else Why.BRIDGE)
        if message.retained and kind != AVAILABILITY:
            return Ignored(Why.RETAINED)
        return _arrival(message, self._bridge, Lane.ALARM, kind)

    def _of_device(self, path: str, message: Message) -> Reading:
        if path not in self._names:
            if path.endswith(_SUFFIX):
                return _arrival(message, self._names.identifier(path.removesuffix(_SUFFIX)), Lane.ALARM, AVAILABILITY)
            if not _COMMANDS.isdisjoint(path.split("/")[1:]):
                return Ignored(Why.COMMAND)
        if message.retained:
            return Ignored(Why.RETAINED)
        state = decode_object(message.payload)
        name = path if state is not None else self._owner(path)
        time_ns = _time_ns(state.get("last_seen")) if state else None
        return _arrival(message, self._names.identifier(name), Lane.TELEMETRY, "telemetry", time_ns)

    def _owner(self, path: str) -> str:
        """Whose attribute `path` is: the longest known name that it begins with, else it is a name itself."""
        name = path
        while name:
            if name in self._names:
                return name
            name = name.rpartition("/")[0]
        return path


def _arrival(message: Message, device: str, lane: Lane, kind: str, time_ns: int | None = None) -> Arrival:
    return Arrival(
        device=device,
        channel=message.topic,
        lane=lane,
        content_type=content_type_of(message.payload),
        data=message.payload,
        adapter=ADAPTER,
        type=kind,
        time_ns=time_ns,
        evidence=None if time_ns is None else DeviceTime(time_ns),
    )


def _decode_names(payload: bytes) -> dict[str, str]:
    try:
        devices = _devices.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"bridge/devices is not a list of devices: {error}") from None
    return {each.friendly_name: each.ieee_address for each in devices}


def _time_ns(last_seen: Any) -> int | None:
    """`last_seen` in each of its forms: RFC 3339, or milliseconds since 1970. Anything else is left out."""
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
