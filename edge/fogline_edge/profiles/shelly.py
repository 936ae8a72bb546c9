"""Profile `shelly`: devices of generation 2 and later below a topic prefix of their own, and of generation 1 below `shellies/`.

| topic | result |
|---|---|
| `{prefix}/online`, `shellies/{id}/online` (`true`, `false`) | an event `availability`, lane alarm |
| `{prefix}/events/rpc` with method `NotifyStatus`, `NotifyFullStatus` | telemetry |
| `{prefix}/events/rpc` with method `NotifyEvent` (a button, an update) | an event `event`, lane telemetry |
| `{prefix}/status/{component}` | an event `status`, lane telemetry |
| `shellies/{id}/announce`, `shellies/{id}/info`, `shellies/announce` | an event `info`, lane telemetry |
| `shellies/{id}/...`, all others | telemetry |
| `.../command`, `.../command/...`, `.../set`, `{prefix}/rpc` | ignored: commands |
| `{client id}/{device}/rpc` | ignored: answers to commands of the gateway |

The device's identifier is its prefix (generation 2, by default the id of the device) or its id (generation 1).

Retained messages are ignored, except `online`, which is current. The time of a notification, `params.ts`, is the event's own.
"""

import re
from typing import Any, NamedTuple

from fogline.address import device_identifier, shown
from fogline.errors import Misconfigured, Poison
from fogline.events.device_report import AVAILABILITY
from fogline.events.event import Lane
from fogline_edge.profiles.patterns import DEVICE, compile_pattern
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason, Reading

PREFIX = DEVICE
ONLINE = "online"
_ROOT = "shellies/"
_COMMANDS = re.compile(r"(?:.*/)?command(?:/.*)?|.*/set")
_MAX_TIME_S = 2**33


class ShellyPlace(NamedTuple):
    """A topic: the device's name at the broker, the generation that uses the topic (1 or 2), and the rest."""

    name: str
    generation: int
    rest: str


class Shelly:
    """Reads the messages of Shelly devices. `prefix`: the topic prefix of generation 2, with `{device}` for one level.

    `source`: what answers to commands of the gateway begin with. Raises `Misconfigured` for an invalid prefix.
    """

    def __init__(self, prefix: str = PREFIX, source: str = "") -> None:
        if "+" in prefix or "#" in prefix:
            raise Misconfigured(
                f"mqtt_clients: topic_prefix = {prefix!r}: expected words and {DEVICE}, for example 'site/{DEVICE}'"
            )
        compile_pattern("mqtt_clients: topic_prefix", prefix, needs_device=True)
        before, _, after = prefix.partition(DEVICE)
        self._matches = re.compile(f"{re.escape(before)}([^/]+){re.escape(after)}/(.+)").fullmatch
        self._prefix = prefix
        self._answers = re.compile(f"{re.escape(source)}/([^/]+)/rpc").fullmatch if source else None
        any_device = prefix.replace(DEVICE, "+")
        below = (ONLINE, "events/rpc", "status/#")
        self._filters = (*(Filter(f"{any_device}/{each}") for each in below), Filter(f"{_ROOT}#"))

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The topics that devices of generation 2 publish, and all of generation 1."""
        return self._filters

    def parse(self, topic: str) -> ShellyPlace | None:
        """Return the parts of a topic; None if no device uses it."""
        match = self._matches(topic)
        if match is not None and match[2].startswith((ONLINE, "events/", "status/", "rpc")):
            return ShellyPlace(match[1], 2, match[2])
        if topic.startswith(_ROOT):
            device, _, rest = topic.removeprefix(_ROOT).partition("/")
            return ShellyPlace(device, 1, rest) if device else None
        return None

    def answering_device(self, topic: str) -> str | None:
        """Return the device whose answer to a command of the gateway has this topic."""
        match = self._answers(topic) if self._answers is not None else None
        return match[1] if match is not None else None

    def topic_of(self, name: str, generation: int, rest: str) -> str:
        """Return a device's topic: the inverse of `parse`."""
        return f"{self._prefix.replace(DEVICE, name) if generation > 1 else _ROOT + name}/{rest}"

    def read(self, message: BrokerMessage) -> Reading:
        """See `Profile.read`."""
        topic = message.channel
        if self.answering_device(topic) is not None:
            return Ignored(IgnoreReason.ANSWER)
        place = self.parse(topic)
        if place is None:
            raise Poison("bad-topic", f"topic {shown(topic)} is not of a Shelly; see topic_prefix")
        if not place.rest:
            place = ShellyPlace("shellies", 1, place.name)
        if place.rest == "rpc" or _COMMANDS.fullmatch(place.rest):
            return Ignored(IgnoreReason.COMMAND)
        if not message.payload:
            return Ignored(IgnoreReason.EMPTY)
        if message.retained and place.rest != ONLINE:
            return Ignored(IgnoreReason.RETAINED)
        device = device_identifier(place.name, "topic prefix")
        if place.rest == ONLINE:
            return message.arrival(device, Lane.ALARM, AVAILABILITY)
        notification = message.json_object if place.rest == "events/rpc" else None
        time_ns = _time_ns(notification) if notification is not None else None
        return message.arrival(device, Lane.TELEMETRY, _type(place, notification), time_ns=time_ns)


def _type(place: ShellyPlace, notification: dict[str, Any] | None) -> str:
    if notification is not None:
        return "event" if notification.get("method") == "NotifyEvent" else "telemetry"
    if place.generation > 1:
        return "status"
    return "info" if place.rest in ("announce", "info") else "telemetry"


def _time_ns(notification: dict[str, Any]) -> int | None:
    """Return `params.ts`, in seconds since 1970, in ns. A device without a clock gives none, or `null`."""
    params = notification.get("params")
    ts = params.get("ts") if isinstance(params, dict) else None
    if isinstance(ts, bool) or not isinstance(ts, int | float) or not 0 < ts < _MAX_TIME_S:
        return None
    return round(ts * 1000) * 1_000_000
