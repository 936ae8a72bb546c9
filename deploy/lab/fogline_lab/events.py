"""Events and batches for tests."""

from base64 import b64encode
from random import Random

from fogline.events.codec import Beacon, Range, encode_batch, encode_event
from fogline.events.event import Arrival, Event, Lane, TimeQuality, rfc3339
from fogline.events.identity import Retransmission
from fogline.message import Message

NOW_NS = 1_790_000_000_123_456_000
BEACON = Beacon("5f3a0c1e-0000-4000-8000-000000000001", 123_456)
STREAM = "00112233445566aa"


def make_event(sequence: int = 1, **other: object) -> Event:
    """Make a telemetry event; any attribute may be given."""
    attributes: dict[str, object] = {
        "id": f"ID{sequence:024d}",
        "tenant": "acme",
        "device": "lamp-1",
        "type": "telemetry",
        "subject": "telemetry",
        "recordedtime": rfc3339(NOW_NS + sequence * 1000),
        "content_type": "application/json",
        "data": b'{"n": %d, "temperature": 21.5}' % sequence,
        "gateway": "gw-1",
        "stream": STREAM,
        "sequence": sequence,
        "lane": Lane.TELEMETRY,
        "timequality": TimeQuality.SYNCED,
        "dedup": "weak",
        "adapter": "mqtt",
    }
    return Event(**{**attributes, **other})  # type: ignore[arg-type]


def make_batch(first: int, last: int, **other: object) -> tuple[Range, Message]:
    """Make a batch of the sequences `first` to `last`, with its range."""
    events = [make_event(sequence, **other) for sequence in range(first, last + 1)]
    head = events[0]
    span = Range(head.gateway, head.stream, head.lane, first, last, b"chain" + last.to_bytes(11, "big"))
    return span, encode_batch(span, [encode_event(event) for event in events], BEACON)


def make_arrival(n: int = 1, *, slot: bytes | None = None, again: bool = False, **other: object) -> Arrival:
    """Make an arrival of a device; with `slot` it carries MQTT's retransmission data."""
    attributes: dict[str, object] = {
        "device": "lamp-1",
        "channel": "telemetry",
        "lane": Lane.TELEMETRY,
        "content_type": "application/json",
        "data": b'{"n": %d}' % n,
        "adapter": "mqtt",
        "retransmission": Retransmission(slot, again) if slot is not None else None,
    }
    return Arrival(**{**attributes, **other})  # type: ignore[arg-type]


def make_noise(size: int, seed: int = 0) -> bytes:
    """Make `size` printable bytes of which compression saves a quarter at most. The same seed gives the same bytes."""
    return b64encode(Random(seed).randbytes(size * 3 // 4 + 3))[:size]
