"""Profile `plain`, for any program: the settings declare the topics and the level that names the device.

Each pattern must contain `{device}` (`plant/{device}/#`), because a broker does not forward who published a message. Retained
messages are repeats or of unknown age, so they are ignored on all lanes but `alarm`: a retained alarm may still be active.
"""

from collections.abc import Sequence

from fogline.address import device_identifier, shown
from fogline.errors import Misconfigured, Poison
from fogline.events.event import Lane
from fogline_edge.profiles.patterns import DEVICE, compile_pattern
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason, Reading
from fogline_edge.settings import TopicSettings


class Plain:
    """Reads messages whose topics match the patterns. Raises `Misconfigured` for an invalid pattern, and if there is none."""

    def __init__(self, topics: Sequence[TopicSettings]) -> None:
        if not topics:
            raise Misconfigured("mqtt_clients: profile = 'plain' needs topics, for example topic = \"plant/{device}/#\"")
        key = "mqtt_clients.topics: topic"
        self._patterns = [(compile_pattern(key, each.topic, needs_device=True), each) for each in topics]

    @property
    def filters(self) -> tuple[Filter, ...]:
        """One filter per pattern."""
        return tuple(Filter(rule.topic.replace(DEVICE, "+")) for _, rule in self._patterns)

    def read(self, message: BrokerMessage) -> Reading:
        """See `Profile.read`."""
        topic = message.channel
        for matches, rule in self._patterns:
            match = matches(topic)
            if match is not None:
                if message.retained and rule.lane is not Lane.ALARM:
                    return Ignored(IgnoreReason.RETAINED)
                device = device_identifier(match[1], "device")
                return message.arrival(device, rule.lane, rule.type, content_type=rule.content_type)
        raise Poison("bad-topic", f"no pattern of the settings matches topic {shown(topic)}")
