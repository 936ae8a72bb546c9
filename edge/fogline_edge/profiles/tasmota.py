"""Tasmota: every device publishes below a full topic, by default `%prefix%/%topic%/`.

| prefix, and what follows the full topic | becomes |
|---|---|
| `tele` `LWT` (`Online`, `Offline`) | an event `availability`, lane alarm |
| `tele` `INFO1` to `INFO3` | an event `info`, lane telemetry |
| `tele` `SENSOR`, `STATE`, all others | telemetry |
| `stat` `STATUS`, `STATUS0`, ... | an event `status`, lane telemetry |
| `stat` `RESULT`, `POWER`, `POWER1`, ..., all others | an event `result`, lane telemetry |
| `LOGGING` of either | nothing |
| `cmnd` | nothing: commands of others; not subscribed to |
| `tasmota/discovery/...` | nothing: the device is known by its topic; not subscribed to |

The device is its `%topic%`, escaped if need be. Retained messages are passed over, but for `LWT`, which holds now.

`Time` in a payload is local time without an offset: nobody can say which moment that was, so it stays in the payload, and
the event has neither a time of its own nor evidence.
"""

import re

from fogline.address import shown
from fogline.errors import Misconfigured, Poison
from fogline.event import Arrival, Lane
from fogline_edge.profiles.names import escape
from fogline_edge.profiles.profile import (
    ADAPTER,
    AVAILABILITY,
    Filter,
    Ignored,
    Message,
    Reading,
    Why,
    check_topic,
    content_type_of,
)

FULL_TOPIC = "%prefix%/%topic%/"
"""Tasmota's own default."""

_LAST_WILL = "LWT"
_LOGGING = "LOGGING"
_PREFIXES = ("tele", "stat")
_DISCOVERY = "tasmota/discovery/"
_TYPES = {"tele": re.compile(r"(?P<info>INFO\d*)"), "stat": re.compile(r"(?P<status>STATUS\d*)")}
_OTHER_TYPE = {"tele": "telemetry", "stat": "result"}


class Tasmota:
    """Reads what the devices with one `FullTopic` publish. Raises `Misconfigured` for a full topic that is none."""

    def __init__(self, full_topic: str = FULL_TOPIC) -> None:
        levels = full_topic.strip("/").split("/")
        words = [each for each in levels if each not in ("%prefix%", "%topic%")]
        if (
            levels.count("%prefix%") != 1
            or levels.count("%topic%") != 1
            or any(not each or set(each) & set("+#%$\0") for each in words)
        ):
            raise Misconfigured(
                f"mqtt_clients: full_topic = {full_topic!r}: expected words, %prefix% and %topic% (each once, each a level)"
            )
        filters = {prefix: [{"%prefix%": prefix, "%topic%": "+"}.get(each, each) for each in levels] for prefix in _PREFIXES}
        self._filters = tuple(Filter("/".join((*each, "#"))) for each in filters.values())
        parts = {"%prefix%": "(?P<prefix>tele|stat|cmnd)", "%topic%": "(?P<topic>[^/]+)"}
        expression = "/".join(parts.get(each, re.escape(each)) for each in levels) + "/(?P<rest>.+)"
        self._matches = re.compile(expression).fullmatch

    @property
    def filters(self) -> tuple[Filter, ...]:
        """What the devices say by themselves, and what they answer."""
        return self._filters

    def read(self, message: Message) -> Reading:
        """See `Profile.read`."""
        topic = check_topic(message.topic)
        if topic.startswith(_DISCOVERY):
            return Ignored(Why.DISCOVERY)
        match = self._matches(topic)
        if match is None:
            raise Poison("bad-topic", f"topic {shown(topic)} is none of Tasmota's")
        prefix, word = match["prefix"], match["rest"].rpartition("/")[2]
        why = _why_not(prefix, word, message)
        if why is not None:
            return Ignored(why)
        last_will = prefix == "tele" and word == _LAST_WILL
        return Arrival(
            device=escape(match["topic"]),
            channel=topic,
            lane=Lane.ALARM if last_will else Lane.TELEMETRY,
            type=AVAILABILITY if last_will else _type(prefix, word),
            content_type=content_type_of(message.payload),
            data=message.payload,
            adapter=ADAPTER,
        )


def _why_not(prefix: str, word: str, message: Message) -> Why | None:
    """Why this is no event, if it is none."""
    if prefix == "cmnd":
        return Why.COMMAND
    if word == _LOGGING:
        return Why.LOGGING
    if not message.payload:
        return Why.EMPTY
    return Why.RETAINED if message.retained and word != _LAST_WILL else None


def _type(prefix: str, word: str) -> str:
    match = _TYPES[prefix].fullmatch(word)
    return match.lastgroup or "" if match else _OTHER_TYPE[prefix]
