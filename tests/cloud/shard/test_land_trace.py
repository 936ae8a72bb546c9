"""Spans of the bridge: what a delivery landed."""

from fogline.events.codec import object_of
from fogline.tracing.spans import SpanKind
from fogline_cloud.shard.work.land_trace import LandTrace
from fogline_lab.events import make_event

TRACED = "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_landing_takes_from_the_arrival_of_the_batch_to_its_settlement():
    exported = []
    trace = LandTrace(exported.extend)
    trace.wrote([object_of(make_event(1)), object_of(make_event(2, properties=TRACED))])
    assert exported == []
    trace.landed("hono.telemetry.acme", 3)
    (span,) = exported
    assert (span.name, span.kind) == ("fogline.land", SpanKind.CLIENT)
    assert 0 < span.start_ns <= span.end_ns
    found = dict(span.attributes)
    assert (found["messaging.system"], found["messaging.destination.name"], found["messaging.destination.partition.id"]) == (
        "kafka",
        "hono.telemetry.acme",
        "3",
    )
    assert found["fogline.sequence"] == 2


def test_a_batch_that_is_written_again_after_a_failed_transaction_has_its_spans_once():
    exported = []
    trace = LandTrace(exported.extend)
    for _ in range(2):
        trace.wrote([make_event(1, properties=TRACED)])
    trace.landed("t", 0)
    assert len(exported) == 1


def test_a_batch_of_duplicates_has_none():
    exported = []
    LandTrace(exported.extend).landed("t", 0)
    assert exported == []
