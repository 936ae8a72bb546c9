"""Spans of one trace."""

from fogline.tracing.spans import SpanKind, span_of, traced_event
from fogline_lab.events import make_event

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = f"traceparent=00-{TRACE}-{PARENT}-01&tracestate=a%3D1"
BEGIN, END = 1_790_000_000_000_000_001, 1_790_000_000_500_000_002


def span(sequence=7, name="fogline.land", times=(BEGIN, END), error="", **other):
    traced = traced_event(make_event(sequence, properties=TRACED, **other))
    return span_of(traced, name, SpanKind.CLIENT, times, {"messaging.kafka.offset": 2**60}, error=error)
