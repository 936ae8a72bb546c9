"""Events as MQTT messages for programs on the site: pure.

| event | topic |
|---|---|
| of lane `alarm` | `event/{tenant}/{device}/{channel}` |
| of any other lane | `telemetry/{tenant}/{device}/{channel}` |

These are Eclipse Hono's words for two kinds of messages: a device publishes to `telemetry/{tenant}/{device}` itself, and
Kafka's topics are `hono.telemetry.{tenant}` and `hono.event.{tenant}`. If the channel is such a topic, it is not repeated.

The payload has the device's bytes, and none of a large body. MQTT 5 has the attributes of CloudEvents' MQTT binding in binary
mode (section 3.1) as well.
"""

from collections.abc import Mapping

import msgspec

from fogline.events.event import Event, Lane
from fogline_edge.adapters.mqtt.hono.topics import is_hono_topic
from fogline_edge.adapters.mqtt.protocol.properties import NONE, Properties

_ESCAPES = str.maketrans({"%": "%25", "+": "%2B", "#": "%23", "\0": "%00"})
"""Characters that a topic name must not have (5: 4.7.1, 4.7.3)."""
_ATTRIBUTES = ("recordedtime", "timequality", "gateway", "device", "lane", "dedup")


class LocalMessage(msgspec.Struct, frozen=True):
    """A message for local subscribers."""

    topic: str
    payload: bytes
    properties: Properties = NONE

    @property
    def size(self) -> int:
        """Roughly the bytes that the message holds in memory."""
        return len(self.payload) + len(self.topic) + sum(len(name) + len(value) for name, value in self.properties.user)


def message(topic: str, payload: bytes, attributes: Mapping[str, str], content_type: str | None = None) -> LocalMessage:
    """Return a message with user properties. Raises `ValueError` for a topic with a wildcard."""
    if not topic or set(topic) & {"+", "#", "\0"}:
        raise ValueError(f"{topic!r} is no topic name")
    return LocalMessage(topic, payload, Properties(content_type=content_type, user=tuple(attributes.items())))


def event_message(event: Event) -> LocalMessage:
    """Return the message of an event."""
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "time": event.time or event.recordedtime,
        **{name: str(getattr(event, name)) for name in _ATTRIBUTES},
        **({} if event.dataref is None else {"dataref": event.dataref}),
    }
    return message(event_topic(event), event.data, attributes, event.content_type or None)


def event_topic(event: Event) -> str:
    """Return the topic of an event."""
    head = f"{'event' if event.lane is Lane.ALARM else 'telemetry'}/{event.tenant}/{event.device}"
    channel = "" if is_hono_topic(event.subject) else event.subject.strip("/").translate(_ESCAPES)
    return f"{head}/{channel}" if channel else head
