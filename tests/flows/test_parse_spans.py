"""Spans of the flow: which rows have them, and what they say."""

import pyarrow as pa

from fogline.tracing.spans import SpanKind
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.schema import STORED
from fogline_cloud.flows.worker.parse_spans import MAX_TRACED, parse_spans, traced_rows

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENTED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
ROW = {
    "topic": "hono.telemetry.acme",
    "partition": 1,
    "offset": 17,
    "gateway": "gw-1",
    "stream": "00000000000000aa",
    "sequence": 5,
    "lane": "telemetry",
    "source": "/acme/devices/lamp-1",
    "id": "ID-5",
    "type": "telemetry",
    "subject": "air",
    "outcome": "ok",
    "parser": "json",
    "size_bytes": 12,
}


def table(*properties, **other):
    rows = [{**ROW, **other, "properties": None if each is None else list(each.items())} for each in properties]
    return pa.Table.from_pylist(rows, schema=STORED)


def test_parsing_takes_from_the_begin_of_the_micro_batch_to_its_commit():
    (span,) = parse_spans(traced_rows(table({"room": "1"}, None, {**PARENTED, "tracestate": "a=1"})), "main", (100, 200))
    assert (span.name, span.kind, tuple(span.context)) == ("fogline.parse", SpanKind.CONSUMER, (TRACE, PARENT, "a=1"))
    assert (span.start_ns, span.end_ns, span.error) == (100, 200, "")
    found = dict(span.attributes)
    assert {name: found[name] for name in found if not name.startswith("cloudevents.")} == {
        "messaging.message.id": "ID-5",
        "messaging.system": "kafka",
        "messaging.operation.name": "parse",
        "messaging.operation.type": "process",
        "messaging.destination.name": "hono.telemetry.acme",
        "messaging.destination.partition.id": "1",
        "messaging.kafka.offset": 17,
        "messaging.message.body.size": 12,
        "fogline.gateway": "gw-1",
        "fogline.stream": "00000000000000aa",
        "fogline.sequence": 5,
        "fogline.lane": "telemetry",
        "fogline.flow": "main",
        "fogline.outcome": "ok",
        "fogline.parser": "json",
    }


def test_an_event_that_cannot_be_parsed_is_an_error():
    dead = traced_rows(table(PARENTED, outcome=schema.EventOutcome.DEAD.value, reason="parser-error"))
    assert [span.error for span in parse_spans(dead, "main", (0, 1))] == ["dead parser-error"]
    skipped = traced_rows(table(PARENTED, outcome=schema.EventOutcome.SKIP.value, reason="no-parser"))
    assert [span.error for span in parse_spans(skipped, "main", (0, 1))] == [""]


def test_rows_without_a_sampled_trace_or_an_identity_have_none():
    unsampled = {"traceparent": PARENTED["traceparent"].removesuffix("01") + "00"}
    assert traced_rows(table(None, {}, {"traceparent": ""}, unsampled)) == []
    assert traced_rows(table(PARENTED, id=None)) == []


def test_an_event_of_an_amqp_client_has_no_position_in_a_stream():
    (row,) = traced_rows(table(PARENTED, gateway=None, stream=None, sequence=None, lane=None))
    (span,) = parse_spans([row], "main", (0, 1))
    assert "fogline.stream" not in span.attributes


def test_a_task_reports_a_bounded_number_of_rows():
    assert len(traced_rows(table(*[PARENTED] * (MAX_TRACED + 1)))) == MAX_TRACED
