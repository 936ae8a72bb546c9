"""Spans of the gateway: which events have them, and what they say."""

import pytest

from fogline.events.codec import encode_event
from fogline.events.event import Receipt, TimeQuality
from fogline.tracing.spans import SpanKind
from fogline_edge.event_spans import forward_spans, store_spans
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.amqp import within
from fogline_lab.events import NOW_NS, make_arrival, make_event

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACED = f"traceparent=00-{TRACE}-{PARENT}-01"


def body(sequence=1, **other):
    return encode_event(make_event(sequence, **{"properties": TRACED, **other}))


def test_storing_takes_from_the_arrival_to_the_commit():
    (span,) = store_spans([body(subject="plant/t", timequality=TimeQuality.UNSYNCED)], NOW_NS + 5_000_000)
    assert (span.name, span.kind, span.context[:2]) == ("fogline.store", SpanKind.CONSUMER, (TRACE, PARENT))
    assert (span.start_ns, span.end_ns) == (NOW_NS + 1000, NOW_NS + 5_000_000)
    attributes = dict(span.attributes)
    assert {name: attributes[name] for name in attributes if not name.startswith("cloudevents.")} == {
        "messaging.message.id": "ID000000000000000000000001",
        "messaging.system": "mqtt",
        "messaging.operation.name": "store",
        "messaging.operation.type": "process",
        "messaging.destination.name": "plant/t",
        "messaging.message.body.size": 29,
        "fogline.gateway": "gw-1",
        "fogline.stream": "00112233445566aa",
        "fogline.sequence": 1,
        "fogline.lane": "telemetry",
        "fogline.adapter": "mqtt",
        "fogline.timequality": "unsynced",
    }


@pytest.mark.parametrize(
    ("adapter", "kind", "protocol"),
    [("mqtt-client", SpanKind.CONSUMER, None), ("http", SpanKind.SERVER, "http"), ("ble", SpanKind.INTERNAL, None)],
)
def test_the_kind_of_storing_follows_the_protocol_of_the_device(adapter, kind, protocol):
    (span,) = store_spans([body(adapter=adapter)], NOW_NS)
    assert (span.kind, span.attributes.get("network.protocol.name")) == (kind, protocol)
    assert ("messaging.system" in span.attributes) == (kind is SpanKind.CONSUMER)


def test_forwarding_takes_from_sending_to_settlement():
    (span,) = forward_spans([body()], "ingest/acme/3", (NOW_NS, NOW_NS + 7))
    assert (span.name, span.kind, span.start_ns, span.end_ns, span.error) == (
        "fogline.forward",
        SpanKind.CLIENT,
        NOW_NS,
        NOW_NS + 7,
        "",
    )
    assert (span.attributes["messaging.system"], span.attributes["messaging.destination.name"]) == ("amqp", "ingest/acme/3")
    (refused,) = forward_spans([body()], "ingest/acme/3", (NOW_NS, NOW_NS), error="amqp:decode-error malformed")
    assert refused.error == "amqp:decode-error malformed"


def test_only_events_with_a_sampled_trace_have_spans():
    bodies = [
        body(1, properties=None),
        body(2, properties="room=1"),
        body(3, properties=None, data=b'"traceparent=%s"' % TRACED.encode()),
        body(4, properties=TRACED.removesuffix("01") + "00"),
        body(5, properties="traceparent=00-1-2-01"),
        b'{"traceparent=',
        body(6),
    ]
    assert [span.attributes["fogline.sequence"] for span in store_spans(bodies, NOW_NS)] == [6]
    assert [span.attributes["fogline.sequence"] for span in forward_spans(bodies, "x", (0, 1))] == [6]


async def test_the_outbox_exports_spans_of_stored_events_not_of_duplicates(folder):
    exported = []
    settings = EdgeSettings(tenant="acme", gateway="gw-1", data=str(folder / "data"))
    outbox = Outbox.open(settings, export=exported.extend)
    for again, receipt in ((False, Receipt.STORED), (True, Receipt.DUPLICATE)):
        stored = outbox.streams._loop.create_future()
        outbox.port.put(make_arrival(1, properties=TRACED, slot=b"slot", again=again), stored.set_result)
        assert await within(stored, "not acknowledged") is receipt
    plain = outbox.streams._loop.create_future()
    outbox.port.put(make_arrival(2), plain.set_result)
    await within(plain, "not acknowledged")
    (stream,) = await outbox.streams.pending()
    await outbox.close()
    (span,) = exported
    assert (span.name, span.attributes["fogline.stream"], span.attributes["fogline.sequence"]) == (
        "fogline.store",
        stream.stream,
        1,
    )
    assert span.start_ns <= span.end_ns
