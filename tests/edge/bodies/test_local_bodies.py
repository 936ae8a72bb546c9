"""What programs on the site get of a large body: that it came, and not its chunks."""

import msgspec

from fogline.events.codec import encode_event
from fogline.events.large_body import CHUNK_CONTENT_TYPE, BodyChunk, BodyRef
from fogline_edge.adapters.mqtt.server.event_feed import EventFeed
from fogline_lab.events import make_event
from fogline_lab.port import MemoryPort

ID = "0f" * 16
REF = BodyRef(ID, 1, 300_000, "a" * 64)


class Subscriber:
    """A session that takes every message."""

    key = ("", "viewer")
    discarded = 0

    def __init__(self):
        self.messages = []

    def deliver(self, message):
        self.messages.append(message)
        return ()


async def test_subscriber_gets_the_event_of_a_large_body_without_payload_and_no_chunk():
    feed, subscriber = EventFeed(MemoryPort(gateway="gw-9")), Subscriber()
    feed._listeners[subscriber] = None
    event = make_event(1, data=b"", content_type="image/jpeg")
    chunk = msgspec.structs.replace(event, data=b"x", content_type=CHUNK_CONTENT_TYPE, dataref=str(BodyChunk(ID, 0)))
    feed._committed([encode_event(chunk), encode_event(msgspec.structs.replace(event, dataref=str(REF)))])
    (message,) = subscriber.messages
    assert (message.payload, message.properties.content_type) == (b"", "image/jpeg")
    assert ("dataref", str(REF)) in message.properties.user
