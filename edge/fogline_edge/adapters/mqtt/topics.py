"""Topic names to devices and lanes: Eclipse Hono's topics, and the free ones that the settings declare.

| topic | means |
|---|---|
| `telemetry`, `t` | the client's own device, lane telemetry |
| `event`, `e` | the client's own device, lane alarm |
| `telemetry/{tenant}/{device}`, `t//{device}`, ... | that device; an empty tenant is the gateway's own |
| any of them + `/?name=value&...` | Hono's property bag, URL encoded; `content-type` is read, the rest goes with the event |
| a pattern of the settings | as it says: `plant/{device}/#` |

A device's name that is no identifier is escaped (`profiles/names.py`): `t//Wohnzimmer Lampe` is device `Wohnzimmer:20Lampe`.

Hono's words keep their one-level and three-level forms to themselves; patterns see all other topics.
"""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

import msgspec

from fogline.address import shown
from fogline.errors import Misconfigured, Poison
from fogline.event import Lane
from fogline_edge.profiles.names import device_identifier
from fogline_edge.settings import TopicSettings

MAX_TOPIC = 1024
"""The longest topic, in characters, that becomes a channel."""

_LANES = {"telemetry": Lane.TELEMETRY, "t": Lane.TELEMETRY, "event": Lane.ALARM, "e": Lane.ALARM}
_TYPES = {Lane.TELEMETRY: "telemetry", Lane.ALARM: "alarm"}
BAG = "/?"
"""What begins Hono's property bag."""
_KIND = "content-type"
_MAX_BAG = 32
_CACHED = 4096
_CACHED_TOPIC = 256


class Target(msgspec.Struct, frozen=True):
    """What a topic stands for. `device` and `content_type` are `None` where the topic does not say.

    `properties`: what else its property bag holds, as a URL query.
    """

    device: str | None
    channel: str
    lane: Lane
    type: str
    content_type: str | None
    properties: str | None = None


class _Pattern:
    """One pattern of the settings, compiled."""

    def __init__(self, settings: TopicSettings) -> None:
        self.settings = settings
        levels = settings.topic.split("/")
        devices = levels.count("{device}")
        words = [each for each in levels if each not in ("{device}", "+", "#")]
        if not settings.topic or devices > 1 or "#" in levels[:-1] or any(set(each) & set("+#{}\0") for each in words):
            raise Misconfigured(
                f"mqtt.topics: topic = {settings.topic!r}: a level is a word, + or {{device}} (once), and # may end it"
            )
        parts = [{"{device}": "([^/]+)", "+": "[^/]*"}.get(each, re.escape(each)) for each in levels]
        if levels[-1] == "#":
            parts.pop()
            expression = "/".join(parts) + "(?:/.*)?" if parts else ".*"
        else:
            expression = "/".join(parts)
        guard = "" if levels[0] in words else r"(?!\$)"
        self.matches = re.compile(guard + expression, re.DOTALL).fullmatch


class Topics:
    """All topics of one gateway. Raises `Misconfigured` for a pattern that is none."""

    def __init__(self, tenant: str, patterns: Iterable[TopicSettings]) -> None:
        self._tenant = tenant
        self._patterns = [_Pattern(each) for each in patterns]
        self._known: dict[str, Target] = {}

    def resolve(self, topic: str) -> Target:
        """What `topic` stands for. Raises `Poison` (`bad-topic`, `bad-identifier`, `foreign-tenant`)."""
        known = self._known.get(topic)
        if known is not None:
            return known
        target = self._resolve(topic)
        if len(topic) <= _CACHED_TOPIC:
            if len(self._known) >= _CACHED:
                self._known.clear()
            self._known[topic] = target
        return target

    def _resolve(self, topic: str) -> Target:
        if len(topic) > MAX_TOPIC or not topic.isprintable():
            raise Poison("bad-topic", f"topic {shown(topic)} is over {MAX_TOPIC} characters, or not printable")
        path, bag, query = topic.partition(BAG)
        levels = path.split("/")
        lane = _LANES.get(levels[0])
        if lane is not None and len(levels) in (1, 3):
            device = self._device(levels[1], levels[2]) if len(levels) == 3 else None
            kind, rest = bag_of(query) if bag else (None, None)
            return Target(device, path, lane, _TYPES[lane], kind, rest)
        return self._free(topic)

    def _device(self, tenant: str, device: str) -> str:
        of_tenant(tenant, self._tenant)
        return device_identifier(device, "device")

    def _free(self, topic: str) -> Target:
        for pattern in self._patterns:
            match = pattern.matches(topic)
            if match is not None:
                device = device_identifier(match[1], "device") if match.re.groups else None
                rule = pattern.settings
                return Target(device, topic, rule.lane, rule.type, rule.content_type)
        raise Poison("bad-topic", f"nothing is declared for topic {shown(topic)}")


def of_tenant(level: str, tenant: str) -> None:
    """Check a topic's level for the tenant: empty, or the gateway's own. Raises `Poison('foreign-tenant')`."""
    if level not in ("", tenant):
        raise Poison("foreign-tenant", f"tenant {shown(level)} is not {tenant}, which this gateway belongs to")


def bag_of(query: str) -> tuple[str | None, str | None]:
    """The first `content-type` of a property bag, and the rest as a URL query. A bag that cannot be read says nothing."""
    try:
        pairs = parse_qsl(query, max_num_fields=_MAX_BAG, keep_blank_values=True)
    except ValueError:
        return None, None
    kinds = [value for name, value in pairs if name == _KIND and value]
    rest = [each for each in pairs if each[0] != _KIND]
    return (kinds[0] if kinds else None), (urlencode(rest) or None)
