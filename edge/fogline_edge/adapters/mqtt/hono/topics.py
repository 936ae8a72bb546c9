"""Resolves topic names to devices and lanes: Eclipse Hono's topics, and the patterns of the settings.

| topic | device, lane |
|---|---|
| `telemetry`, `t` | the client's own device, lane telemetry |
| `event`, `e` | the client's own device, lane alarm |
| `telemetry/{tenant}/{device}`, `t//{device}`, ... | that device; an empty tenant is the gateway's own |
| any of them + `/?name=value&...` | Hono's property bag, URL encoded: `content-type`, and properties of the event |
| a pattern of the settings, such as `plant/{device}/#` | as the settings declare |

A device name that is not an identifier is escaped (`fogline.address`): `t//Wohnzimmer Lampe` is `Wohnzimmer:20Lampe`.
Patterns never match Hono's topics of one or three levels.
"""

from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

import msgspec

from fogline.address import device_identifier, shown
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.profiles.patterns import compile_pattern

MAX_TOPIC = 1024
"""The longest topic, in characters, that can be a channel."""

_LANES = {"telemetry": Lane.TELEMETRY, "t": Lane.TELEMETRY, "event": Lane.ALARM, "e": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}
BAG = "/?"
"""The start of Hono's property bag."""
_CONTENT_TYPE = "content-type"
_MAX_BAG = 32
_CACHED = 4096
_CACHED_TOPIC = 256


class TopicTarget(msgspec.Struct, frozen=True):
    """The meaning of a topic; `None`: it does not name it. `properties`: the rest of its property bag, as a URL query."""

    device: str | None
    channel: str
    lane: Lane
    type: str
    content_type: str | None
    properties: str | None = None


class Topics:
    """All topics of one gateway. Raises `Misconfigured` for an invalid pattern."""

    def __init__(self, tenant: str, patterns: Iterable[TopicSettings]) -> None:
        self._tenant = tenant
        self._patterns = [(compile_pattern("mqtt.topics: topic", each.topic, needs_device=False), each) for each in patterns]
        self._known: dict[str, TopicTarget] = {}

    def resolve(self, topic: str) -> TopicTarget:
        """Return the target of `topic`. Raises `Poison` (`bad-topic`, `bad-identifier`, `foreign-tenant`)."""
        known = self._known.get(topic)
        if known is not None:
            return known
        target = self._resolve(topic)
        if len(topic) <= _CACHED_TOPIC:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[topic] = target
        return target

    def _resolve(self, topic: str) -> TopicTarget:
        if len(topic) > MAX_TOPIC or not topic.isprintable():
            raise Poison("bad-topic", f"topic {shown(topic)} is longer than {MAX_TOPIC} characters, or not printable")
        path, bag, query = topic.partition(BAG)
        levels = path.split("/")
        if is_hono_topic(path):
            lane, device = _LANES[levels[0]], None
            if len(levels) == 3:
                check_tenant(levels[1], self._tenant)
                device = device_identifier(levels[2], "device")
            content_type, rest = parse_bag(query) if bag else (None, None)
            return TopicTarget(device, path, lane, _TYPES[lane], content_type, rest)
        return self._by_pattern(topic)

    def _by_pattern(self, topic: str) -> TopicTarget:
        for matches, rule in self._patterns:
            match = matches(topic)
            if match is not None:
                device = device_identifier(match[1], "device") if match.re.groups else None
                return TopicTarget(device, topic, rule.lane, rule.type, rule.content_type)
        raise Poison("bad-topic", f"no topic of the settings matches {shown(topic)}")


def is_hono_topic(topic: str) -> bool:
    """Return True for a topic of Hono without its property bag."""
    levels = topic.split("/")
    return levels[0] in _LANES and len(levels) in (1, 3)


def check_tenant(level: str, tenant: str) -> None:
    """Check that a topic's tenant level is empty or the gateway's tenant. Raises `Poison('foreign-tenant')`."""
    if level not in ("", tenant):
        raise Poison("foreign-tenant", f"this gateway belongs to tenant {tenant}, not to {shown(level)}")


def parse_bag(query: str) -> tuple[str | None, str | None]:
    """Return a property bag's first `content-type`, in any case, and the rest as a URL query. An unreadable bag is empty."""
    try:
        pairs = parse_qsl(query, max_num_fields=_MAX_BAG, keep_blank_values=True)
    except ValueError:
        return None, None
    content_type = next((value for name, value in pairs if name.lower() == _CONTENT_TYPE and value), None)
    return content_type, urlencode([each for each in pairs if each[0].lower() != _CONTENT_TYPE]) or None
