"""Spans of the flow: `fogline.parse`, from the begin of a micro-batch to its commit. Pure: Arrow in, values out."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline.tracing.context import trace_context
from fogline.tracing.spans import Attribute, SpanKind, TracedEvent, TraceSpan, span_of
from fogline_cloud.flows.tables.schema import EventOutcome

MAX_TRACED = 1000
"""Largest number of traced rows that one task reports. Further ones of a micro-batch have no span."""
_EVENT = ("id", "source", "type", "subject", "gateway", "stream", "sequence", "lane")
_RECORD = ("topic", "partition", "offset", "outcome", "reason", "parser", "size_bytes")
_FAILED = frozenset({EventOutcome.DEAD.value, EventOutcome.SLOW.value})


class TracedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `events` whose device takes part in a trace."""

    event: TracedEvent
    topic: str
    partition: int
    offset: int
    outcome: str
    reason: str | None
    parser: str | None
    size_bytes: int


def traced_rows(rows: pa.Table) -> list[TracedRow]:
    """Return the rows of `events` with a valid and sampled `traceparent`."""
    parents = pc.map_lookup(rows.column("properties"), "traceparent", "first")
    some = rows.filter(parents.is_valid()).slice(0, MAX_TRACED)
    cells = some.select(["properties", *_EVENT, *_RECORD]).to_pylist()
    return [row for each in cells if (row := _traced_row(each)) is not None]


def _traced_row(cells: dict[str, Any]) -> TracedRow | None:
    properties = dict(cells["properties"])
    context = trace_context(properties["traceparent"] or "", properties.get("tracestate") or "")
    if context is None or cells["source"] is None or cells["id"] is None:
        return None
    event = TracedEvent(context=context, **{name: cells[name] for name in _EVENT})
    return TracedRow(event=event, **{name: cells[name] for name in _RECORD})


def parse_spans(rows: Iterable[TracedRow], flow: str, times_ns: tuple[int, int]) -> Sequence[TraceSpan]:
    """Return the spans of rows. `times_ns`: the begin of their micro-batch, and its commit to `events`."""
    return [
        span_of(
            each.event,
            "fogline.parse",
            SpanKind.CONSUMER,
            times_ns,
            _attributes(each, flow),
            error=f"{each.outcome} {each.reason or ''}".strip() if each.outcome in _FAILED else "",
        )
        for each in rows
    ]


def _attributes(row: TracedRow, flow: str) -> dict[str, Attribute]:
    found: dict[str, Attribute | None] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "parse",
        "messaging.operation.type": "process",
        "messaging.destination.name": row.topic,
        "messaging.destination.partition.id": str(row.partition),
        "messaging.kafka.offset": row.offset,
        "messaging.message.body.size": row.size_bytes,
        "fogline.flow": flow,
        "fogline.outcome": row.outcome,
        "fogline.reason": row.reason,
        "fogline.parser": row.parser,
    }
    return {name: value for name, value in found.items() if value is not None}
