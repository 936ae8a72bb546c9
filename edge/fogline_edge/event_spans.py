"""Spans of the gateway: `fogline.store` from arrival to commit, `fogline.forward` from sending to settlement. Pure."""

from collections.abc import Iterable, Iterator

from fogline.errors import Poison
from fogline.events.codec import decode_event
from fogline.events.event import Event, parse_rfc3339
from fogline.tracing.context import may_be_traced
from fogline.tracing.spans import Attribute, SpanKind, TracedEvent, TraceSpan, span_of, traced_event

_SYSTEMS = {"mqtt": "mqtt", "mqtt-client": "mqtt"}
_REQUESTS = frozenset({"http", "coap"})


def store_spans(bodies: Iterable[bytes], committed_ns: int) -> list[TraceSpan]:
    """Return the spans of newly committed events, which begin at their `recordedtime`. `bodies`: as they are stored."""
    return [
        span_of(
            traced,
            "fogline.store",
            _kind(event.adapter),
            (parse_rfc3339(event.recordedtime), committed_ns),
            _stored(event),
        )
        for event, traced in _traced(bodies)
    ]


def forward_spans(bodies: Iterable[bytes], address: str, times_ns: tuple[int, int], *, error: str = "") -> list[TraceSpan]:
    """Return the spans of events that the bridge has settled. `address`: of the AMQP link. `error`: why it refused them."""
    attributes: dict[str, Attribute] = {
        "messaging.system": "amqp",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": address,
    }
    return [
        span_of(traced, "fogline.forward", SpanKind.CLIENT, times_ns, attributes, error=error) for _, traced in _traced(bodies)
    ]


def _traced(bodies: Iterable[bytes]) -> Iterator[tuple[Event, TracedEvent]]:
    for body in bodies:
        if not may_be_traced(body):
            continue
        try:
            event = decode_event(body)
        except Poison:  # the bridge will refuse it, and say so
            continue
        if (traced := traced_event(event)) is not None:
            yield event, traced


def _kind(adapter: str) -> SpanKind:
    if adapter in _SYSTEMS:
        return SpanKind.CONSUMER
    return SpanKind.SERVER if adapter in _REQUESTS else SpanKind.INTERNAL


def _stored(event: Event) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {
        "fogline.adapter": event.adapter,
        "fogline.timequality": event.timequality.value,
        "messaging.message.body.size": len(event.data),
    }
    if (system := _SYSTEMS.get(event.adapter)) is not None:
        found |= {
            "messaging.system": system,
            "messaging.operation.name": "store",
            "messaging.operation.type": "process",
            "messaging.destination.name": event.subject,
        }
    elif event.adapter in _REQUESTS:
        found["network.protocol.name"] = event.adapter
    return found
