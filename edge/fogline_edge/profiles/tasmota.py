"""Profile `tasmota`: every device publishes below a full topic, by default `%prefix%/%topic%/`.

| prefix and last level | result |
|---|---|
| `tele` `LWT` (`Online`, `Offline`) | an event `availability`, lane alarm |
| `tele` `INFO1` to `INFO3` | an event `info`, lane telemetry |
| `tele` `SENSOR`, `STATE`, all others | telemetry |
| `stat` `STATUS`, `STATUS0`, ... | an event `status`, lane telemetry |
| `stat` `RESULT`, `POWER`, `POWER1`, ..., all others | an event `result`, lane telemetry |
| `LOGGING` of either | ignored |
| `cmnd` | ignored: commands of other clients; not subscribed to |
| `tasmota/discovery/...` | ignored: the topic identifies the device; not subscribed to |

The device's identifier is its `%topic%`, escaped if necessary. It has all levels between the prefix and the last level: a topic
may contain a slash (`haus/plug1`), and a Zigbee bridge may use a level for each of its devices (`SetOption89`). A topic with a
slash needs `%topic%` as the last part of the full topic.

Retained messages are ignored, except `LWT`, which is current.

`Time` in a payload is local time without an offset, so it is neither the event's time nor evidence.
"""

import re
from typing import NamedTuple

from fogline.address import device_identifier, shown
from fogline.errors import Misconfigured, Poison
from fogline.events.device_report import AVAILABILITY
from fogline.events.event import Lane
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason, Reading

FULL_TOPIC = "%prefix%/%topic%/"

LAST_WILL = "LWT"
"""Last level of the topic on which a device, or the broker for it, says whether it is online."""
_LOGGING = "LOGGING"
_PREFIXES = ("tele", "stat")
_DISCOVERY = "tasmota/discovery/"
_TYPES = {"tele": re.compile(r"(?P<info>INFO\d*)"), "stat": re.compile(r"(?P<status>STATUS\d*)")}
_OTHER_TYPE = {"tele": "telemetry", "stat": "result"}


class TasmotaPlace(NamedTuple):
    """A topic: its prefix, the device's name, and its last level."""

    prefix: str
    name: str
    word: str


class Tasmota:
    """Reads the messages of devices with one `FullTopic`. Raises `Misconfigured` for an invalid full topic."""

    def __init__(self, full_topic: str = FULL_TOPIC) -> None:
        levels = full_topic.strip("/").split("/")
        words = [each for each in levels if each not in ("%prefix%", "%topic%")]
        each_once = levels.count("%prefix%") == levels.count("%topic%") == 1
        if not each_once or any(not each or set(each) & set("+#%$\0") for each in words):
            raise Misconfigured(
                f"mqtt_clients: full_topic = {full_topic!r}: expected words, %prefix% and %topic% (each once, as a whole level)"
            )
        self._levels = levels
        self._filters = tuple(Filter(self.filter_of(prefix)) for prefix in _PREFIXES)
        parts = {"%prefix%": "(?P<prefix>tele|stat|cmnd)", "%topic%": "(?P<topic>[^/]+)"}
        expression = "/".join(parts.get(each, re.escape(each)) for each in levels) + "/(?P<rest>.+)"
        self._matches = re.compile(expression).fullmatch

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The devices' own messages (`tele`) and their responses (`stat`)."""
        return self._filters

    def read(self, message: BrokerMessage) -> Reading:
        """See `Profile.read`."""
        topic = message.channel
        if topic.startswith(_DISCOVERY):
            return Ignored(IgnoreReason.DISCOVERY)
        place = self.parse(topic)
        if place is None:
            raise Poison("bad-topic", f"topic {shown(topic)} does not match full_topic")
        why = _ignore_reason(place.prefix, place.word, message)
        if why is not None:
            return Ignored(why)
        last_will = place.prefix == "tele" and place.word == LAST_WILL
        lane, kind = (Lane.ALARM, AVAILABILITY) if last_will else (Lane.TELEMETRY, _type(place.prefix, place.word))
        return message.arrival(device_identifier(place.name, "topic"), lane, kind)

    def parse(self, topic: str) -> TasmotaPlace | None:
        """Return the parts of a topic; None if it does not match the full topic."""
        match = self._matches(topic)
        if match is None:
            return None
        below, _, word = match["rest"].rpartition("/")
        return TasmotaPlace(match["prefix"], f"{match['topic']}/{below}" if below else match["topic"], word)

    def topic_of(self, prefix: str, name: str, word: str) -> str:
        """Return the topic of a device's name: the inverse of `parse`."""
        topic, _, below = name.partition("/")
        levels = [{"%prefix%": prefix, "%topic%": topic}.get(each, each) for each in self._levels]
        return "/".join((*levels, *([below] if below else []), word))

    def filter_of(self, prefix: str) -> str:
        """Return the topic filter of all devices' topics with a prefix."""
        return self.topic_of(prefix, "+", "#")


def _ignore_reason(prefix: str, word: str, message: BrokerMessage) -> IgnoreReason | None:
    if prefix == "cmnd":
        return IgnoreReason.COMMAND
    if word == _LOGGING:
        return IgnoreReason.LOGGING
    if not message.payload:
        return IgnoreReason.EMPTY
    return IgnoreReason.RETAINED if message.retained and word != LAST_WILL else None


def _type(prefix: str, word: str) -> str:
    match = _TYPES[prefix].fullmatch(word)
    return match.lastgroup or "" if match else _OTHER_TYPE[prefix]
