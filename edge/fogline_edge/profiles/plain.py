"""Any other program: the settings say which topics there are, and which level names the device.

Patterns are those of the MQTT listener (`plant/{device}/#`), but every one must say where the device's name stands: from a
broker nothing else tells who has published.

Retained messages are passed over on all lanes but `alarm`: they come because of a subscription, and are what was stored
before or of unknown age. An alarm may be one that still holds.
"""

import re
from collections.abc import Sequence

from fogline.address import shown
from fogline.errors import Misconfigured, Poison
from fogline.event import Arrival, Lane
from fogline_edge.profiles.names import device_identifier
from fogline_edge.profiles.profile import ADAPTER, Filter, Ignored, Message, Reading, Why, check_topic
from fogline_edge.settings import TopicSettings

_DEVICE = "{device}"


class _Pattern:
    """One pattern of the settings, compiled."""

    def __init__(self, rule: TopicSettings) -> None:
        self.rule = rule
        levels = rule.topic.split("/")
        words = [each for each in levels if each not in (_DEVICE, "+", "#")]
        if levels.count(_DEVICE) != 1 or "#" in levels[:-1] or any(set(each) & set("+#{}\0") for each in words):
            raise Misconfigured(
                f"mqtt_clients.topics: topic = {rule.topic!r}: a level is a word, + or {{device}} (once), and # may end it"
            )
        self.filter = Filter("/".join("+" if each == _DEVICE else each for each in levels))
        deep = levels[-1] == "#"
        parts = [{_DEVICE: "([^/]+)", "+": "[^/]*"}.get(each, re.escape(each)) for each in (levels[:-1] if deep else levels)]
        self.matches = re.compile("/".join(parts) + ("(?:/.*)?" if deep else ""), re.DOTALL).fullmatch


class Plain:
    """Reads what the patterns name. Raises `Misconfigured` for a pattern that is none, and for none at all."""

    def __init__(self, topics: Sequence[TopicSettings]) -> None:
        if not topics:
            raise Misconfigured("mqtt_clients: profile = 'plain' needs topics, for example topic = \"plant/{device}/#\"")
        self._patterns = [_Pattern(each) for each in topics]

    @property
    def filters(self) -> tuple[Filter, ...]:
        """A filter for each pattern."""
        return tuple(each.filter for each in self._patterns)

    def read(self, message: Message) -> Reading:
        """See `Profile.read`."""
        topic = check_topic(message.topic)
        for pattern in self._patterns:
            match = pattern.matches(topic)
            if match is not None:
                return _arrival(pattern.rule, match[1], message)
        raise Poison("bad-topic", f"nothing is declared for topic {shown(topic)}")


def _arrival(rule: TopicSettings, name: str, message: Message) -> Reading:
    if message.retained and rule.lane is not Lane.ALARM:
        return Ignored(Why.RETAINED)
    return Arrival(
        device=device_identifier(name, "device"),
        channel=message.topic,
        lane=rule.lane,
        type=rule.type,
        content_type=rule.content_type,
        data=message.payload,
        adapter=ADAPTER,
    )
