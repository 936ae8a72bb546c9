"""Spans on the wire, read by OpenTelemetry's own protobuf messages."""

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from fogline.tracing.context import TraceContext
from fogline.tracing.otlp import encode_spans
from fogline.tracing.spans import SpanKind, span_of, traced_event
from fogline_lab.events import STREAM, make_event
from shared.tracing.example_spans import BEGIN, END, PARENT, TRACE, TRACED, span
from trace_collector import decode


def test_every_field_of_a_span_arrives():
    (received,) = decode(encode_spans({"service.name": "fogline-bridge"}, [span(error="dead parser-error")]))
    assert received.resource == {"service.name": "fogline-bridge"}
    found = received.span
    assert (found.trace_id.hex(), found.parent_span_id.hex(), found.trace_state) == (TRACE, PARENT, "a=1")
    assert (found.name, found.kind) == ("fogline.land", Span.SPAN_KIND_CLIENT)
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (BEGIN, END)
    assert (found.status.code, found.status.message) == (Status.STATUS_CODE_ERROR, "dead parser-error")
    assert found.flags == 0x301
    assert received.attributes == {
        "cloudevents.event_id": "ID000000000000000000000007",
        "cloudevents.event_source": "/acme/devices/lamp-1",
        "cloudevents.event_type": "telemetry",
        "cloudevents.event_subject": "telemetry",
        "messaging.message.id": "ID000000000000000000000007",
        "messaging.kafka.offset": 2**60,
        "fogline.gateway": "gw-1",
        "fogline.stream": STREAM,
        "fogline.sequence": 7,
        "fogline.lane": "telemetry",
    }


def test_a_success_has_no_status_and_a_clock_that_goes_back_makes_an_empty_span():
    (received,) = decode(encode_spans({}, [span(times=(END, BEGIN))]))
    assert not received.span.HasField("status")
    assert (received.span.start_time_unix_nano, received.span.end_time_unix_nano) == (END, END)


def test_an_operation_on_an_event_has_one_id_however_often_it_is_exported():
    assert span().id == span(times=(0, 1)).id
    assert len({each.id for each in (span(), span(8), span(name="fogline.parse"), span(device="lamp-2"))}) == 4


def test_an_event_of_an_amqp_client_has_no_position_in_a_stream():
    traced = traced_event(make_event(properties=TRACED, gateway="", stream="", sequence=0))
    assert (traced.context, traced.stream, traced.sequence, traced.lane) == (
        TraceContext(TRACE, PARENT, "a=1"),
        None,
        None,
        None,
    )
    assert not any(name.startswith("fogline.") for name in span_of(traced, "x", SpanKind.CLIENT, (0, 1), {}).attributes)
