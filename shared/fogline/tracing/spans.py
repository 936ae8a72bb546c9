"""A span as a value, and the attributes that spans of an event share (OpenTelemetry's semantic conventions)."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import msgspec

from fogline.events.codec import EventObject
from fogline.events.event import Event
from fogline.tracing.context import TraceContext, sampled_context

Attribute = str | int


class SpanKind(IntEnum):
    """Relation of a span to its parent. The numbers are those of OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


class TraceSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One finished operation on one event, a child of the device's span. Times in nanoseconds since 1970.

    `id`: 16 hex digits. `error`: the reason of a failure, or "".
    """

    name: str
    kind: SpanKind
    context: TraceContext
    id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Attribute]
    error: str = ""


ExportSpans = Callable[[Sequence[TraceSpan]], None]
"""Takes finished spans. Any thread may call it. It never blocks and never raises."""


class TracedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of an event that its spans have. `gateway` and the next three: null for an event of an AMQP client."""

    context: TraceContext
    id: str
    source: str
    type: str
    subject: str
    gateway: str | None
    stream: str | None
    sequence: int | None
    lane: str | None


def traced_event(event: Event | EventObject) -> TracedEvent | None:
    """Return an event's part in its trace, or None if it is not traced."""
    context = sampled_context(event.properties)
    if context is None:
        return None
    return TracedEvent(
        context=context,
        id=event.id,
        source=event.source,
        type=event.type,
        subject=event.subject,
        gateway=event.gateway or None,
        stream=event.stream or None,
        sequence=event.sequence if event.stream else None,
        lane=event.lane.value if event.stream else None,
    )


def span_of(
    event: TracedEvent,
    name: str,
    kind: SpanKind,
    times_ns: tuple[int, int],
    attributes: Mapping[str, Attribute],
    *,
    error: str = "",
) -> TraceSpan:
    """Return a span of an event. A clock that was set back in between makes it empty, never negative."""
    start_ns, end_ns = times_ns
    return TraceSpan(
        name=name,
        kind=kind,
        context=event.context,
        id=_span_id(event, name),
        start_ns=start_ns,
        end_ns=max(start_ns, end_ns),
        attributes={**_attributes_of(event), **attributes},
        error=error,
    )


def _span_id(event: TracedEvent, name: str) -> str:
    """Return the same id for the same operation on the same event, so that a repeated export adds no span to the trace."""
    parts = (*event.context[:2], name, event.source, event.id, event.gateway, event.stream, event.sequence)
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def _attributes_of(event: TracedEvent) -> dict[str, Attribute]:
    found: dict[str, Attribute | None] = {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_type": event.type,
        "cloudevents.event_subject": event.subject,
        "messaging.message.id": event.id,
        "fogline.gateway": event.gateway,
        "fogline.stream": event.stream,
        "fogline.sequence": event.sequence,
        "fogline.lane": event.lane,
    }
    return {name: value for name, value in found.items() if value is not None}
