"""Profile `plain`, for any program: the settings declare the topics and the level that names the device.

Each pattern must contain `{device}` (`plant/{device}/#`), because a broker does not forward who published a message. Retained
messages are repeats or of unknown age, so they are ignored on all lanes but `alarm`: a retained alarm may still be active.
"""

from collections.abc import Callable, Sequence

from fogline.address import device_identifier, shown
from fogline.errors import Misconfigured, Poison
from fogline.events.event import Lane
from fogline_edge.broker_settings import TopicSettings
from fogline_edge.profiles.patterns import DEVICE, compile_pattern
from fogline_edge.profiles.profile import BrokerMessage, Filter, Ignored, IgnoreReason, Reading


class Plain:
    """Reads messages whose topics match the patterns. Raises `Misconfigured` for an invalid pattern, and if there is none.

    `is_command`: true for a topic of commands; `is_answer`: for one of echoes and errors, which may have no pattern.
    """

    def __init__(
        self,
        topics: Sequence[TopicSettings],
        is_command: Callable[[str], bool] = lambda _: False,
        is_answer: Callable[[str], bool] = lambda _: False,
    ) -> None:
        if not topics:
            raise Misconfigured("mqtt_clients: profile = 'plain' needs topics, for example topic = \"plant/{device}/#\"")
        key = "mqtt_clients.topics: topic"
        self._is_command = is_command
        self._is_answer = is_answer
        self._patterns = [(compile_pattern(key, each.topic, needs_device=True), each) for each in topics]

    @property
    def filters(self) -> tuple[Filter, ...]:
        """One filter per pattern."""
        return tuple(Filter(rule.topic.replace(DEVICE, "+")) for _, rule in self._patterns)

    def read(self, message: BrokerMessage) -> Reading:
        """See `Profile.read`."""
        topic = message.channel
        if self._is_command(topic):
            return Ignored(IgnoreReason.COMMAND)
        for matches, rule in self._patterns:
            match = matches(topic)
            if match is not None:
                if message.retained and rule.lane is not Lane.ALARM:
                    return Ignored(IgnoreReason.RETAINED)
                device = device_identifier(match[1], "device")
                return message.arrival(device, rule.lane, rule.type, content_type=rule.content_type)
        if self._is_answer(topic):
            return Ignored(IgnoreReason.ANSWER)
        raise Poison("bad-topic", f"no pattern of the settings matches topic {shown(topic)}")

    def parse(self, topic: str) -> tuple[str, str] | None:
        """Return the name of the device in a topic, and the type of its events; None without a pattern for it."""
        if not self._is_command(topic):
            for matches, rule in self._patterns:
                if (match := matches(topic)) is not None:
                    return match[1], rule.type
        return None
