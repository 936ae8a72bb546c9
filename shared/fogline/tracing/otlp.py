"""Spans as OTLP/JSON (OpenTelemetry Protocol 1.x, section JSON Protobuf Encoding): ids in hex, 64-bit integers as text."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fogline.tracing.spans import Attribute, TraceSpan

CONTENT_TYPE = "application/json"
SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the semantic conventions that the attributes follow."""
_SCOPE = "fogline"
_FLAGS = 0x301
"""Flags of a span: sampled; and it is known that its parent is of another process (bits 8 and 9)."""
_ERROR = 2
_encoder = msgspec.json.Encoder()


def encode_spans(resource: Mapping[str, Attribute], spans: Sequence[TraceSpan]) -> bytes:
    """Return an `ExportTraceServiceRequest`. `resource`: the attributes of the process that made the spans."""
    scope_spans = {"scope": {"name": _SCOPE}, "spans": [_span(each) for each in spans], "schemaUrl": SCHEMA_URL}
    resource_spans = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope_spans], "schemaUrl": SCHEMA_URL}
    return _encoder.encode({"resourceSpans": [resource_spans]})


def _span(span: TraceSpan) -> dict[str, Any]:
    context = span.context
    found: dict[str, Any] = {
        "traceId": context.trace_id,
        "spanId": span.id,
        "parentSpanId": context.parent_id,
        "flags": _FLAGS,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _attributes(span.attributes),
    }
    if context.state:
        found["traceState"] = context.state
    if span.error:
        found["status"] = {"code": _ERROR, "message": span.error}
    return found


def _attributes(attributes: Mapping[str, Attribute]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for name, value in attributes.items()
    ]
