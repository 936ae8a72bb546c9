"""Spans of the bridge: `fogline.land`, from the arrival of a batch to its settlement."""

import time
from collections.abc import Iterable, Sequence

from fogline.events.codec import EventObject
from fogline.events.event import Event
from fogline.tracing.spans import Attribute, ExportSpans, SpanKind, TracedEvent, TraceSpan, span_of, traced_event


class LandTrace:
    """The traced events of one delivery, which arrives now. Any thread may use it, one at a time."""

    def __init__(self, export: ExportSpans) -> None:
        self._export = export
        self._arrived_ns = time.time_ns()
        self._traced: Sequence[TracedEvent] = ()

    def wrote(self, events: Iterable[Event | EventObject]) -> None:
        """Take note of the events that the open transaction has; again, if it fails and another one is begun."""
        self._traced = [traced for each in events if (traced := traced_event(each)) is not None]

    def landed(self, topic: str, partition: int) -> None:
        """Export the spans: consumers can read the events, and the delivery is being accepted."""
        if self._traced:
            self._export(land_spans(self._traced, topic, partition, (self._arrived_ns, time.time_ns())))


def land_spans(events: Iterable[TracedEvent], topic: str, partition: int, times_ns: tuple[int, int]) -> list[TraceSpan]:
    """Return the spans of events that a transaction has written to a partition of a raw topic. Pure."""
    attributes: dict[str, Attribute] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
    }
    return [span_of(each, "fogline.land", SpanKind.CLIENT, times_ns, attributes) for each in events]
