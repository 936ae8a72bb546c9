"""Events that expired while they waited."""

import sqlite3

import pytest

from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import record_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.ranges import collect
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_lab.clock import YEAR_NS, FakeClock
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import bodies, put, settings

DROP = {"telemetry": "drop"}


def opened(folder, clock, when_expired=DROP) -> Outbox:
    return Outbox.open(settings(folder, when_expired=when_expired), clock=clock)


async def waiting(outbox: Outbox, lane: Lane = Lane.TELEMETRY) -> str:
    """Three events, of which the second expires after a minute. Returns their stream."""
    for n in range(3):
        await put(outbox, make_arrival(n, lane=lane, expiry_s=60 if n == 1 else None))
    (stream,) = await outbox.streams.pending()
    return stream.stream


def kinds(events) -> list[bool]:
    """Return the gap records among the events."""
    return [event.content_type == GAP_CONTENT_TYPE for event in events]


async def test_a_gap_record_takes_the_place_of_an_event_that_expired_while_it_waited(folder):
    """G16: the expiry was carried and never acted on, and the reason `expired` never given."""
    clock = FakeClock()
    outbox = opened(folder, clock)
    stream = await waiting(outbox)
    clock.go_on(61)
    events = await bodies(outbox, stream)
    assert [event.sequence for event in events] == [1, 2, 3]
    assert kinds(events) == [False, True, False]
    gap = decode_gap(events[1].data)
    assert (gap.reason, gap.first, gap.last, gap.device) == ("expired", 2, 2, "lamp-1")
    assert gap.id is not None
    assert gap.detail.startswith("it was of use until 20")
    (view,) = await outbox.streams.pending()
    assert (view.counts.stored, view.counts.acknowledged, view.counts.dropped) == (3, 3, 1)
    await outbox.close()
    clock.wall_ns -= YEAR_NS
    outbox = opened(folder, clock)
    assert kinds(await bodies(outbox, stream)) == [False, True, False], "it is durable"
    (view,) = await outbox.streams.pending()
    assert view.counts.dropped == 1
    await outbox.close()


@pytest.mark.parametrize("seconds", [0, 59])
async def test_before_its_time_an_event_is_sent(folder, seconds):
    clock = FakeClock()
    outbox = opened(folder, clock)
    stream = await waiting(outbox)
    clock.go_on(seconds)
    assert kinds(await bodies(outbox, stream)) == [False] * 3
    await outbox.close()


@pytest.mark.parametrize(
    ("when_expired", "lane"), [({}, Lane.TELEMETRY), ({"telemetry": "send"}, Lane.TELEMETRY), (DROP, Lane.ALARM)]
)
async def test_lane_sends_expired_events_by_default(folder, when_expired, lane):
    clock = FakeClock()
    outbox = opened(folder, clock, when_expired)
    stream = await waiting(outbox, lane)
    clock.go_on(3600)
    assert kinds(await bodies(outbox, stream)) == [False] * 3
    await outbox.close()


async def test_row_given_to_the_uplink_is_resent_unchanged(folder):
    clock = FakeClock()
    outbox = opened(folder, clock)
    stream = await waiting(outbox)
    before = await outbox.streams.read(stream, 0, 2)
    clock.go_on(3600)
    assert await outbox.streams.read(stream, 0, 2) == before
    await outbox.close()


@pytest.mark.parametrize("then", ["now", "when it came"])
@pytest.mark.fault("T2", "T6")
async def test_nothing_expires_by_a_clock_that_is_not_known_to_be_right(folder, then):
    clock = FakeClock(synchronized=then == "now")
    outbox = opened(folder, clock)
    stream = await waiting(outbox)
    clock.wall_ns += 5 * YEAR_NS
    clock.synchronized = False
    assert kinds(await bodies(outbox, stream)) == [False] * 3
    await outbox.close()


async def test_without_room_to_write_it_down_an_expired_event_is_sent(folder, monkeypatch):
    clock = FakeClock()
    outbox = opened(folder, clock)
    stream = await waiting(outbox)
    clock.go_on(61)

    def no_room(_):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(OutboxStore, "transaction", no_room)
    assert kinds(await bodies(outbox, stream)) == [False] * 3
    monkeypatch.undo()
    await outbox.close()


async def test_ledger_explains_expired_events(folder):
    """The stream's events and counts balance, and name the event and the reason."""
    clock = FakeClock()
    outbox = opened(folder, clock)
    stream = await waiting(outbox)
    clock.go_on(61)
    await bodies(outbox, stream)
    await outbox.streams.split_backlog(frozenset({Lane.TELEMETRY}), 1)
    events = await bodies(outbox, stream)
    reader, places = EvidenceReader("default", {}), []
    for event in events:
        record = record_of(event, b"")
        reader.take_record(CommittedRecord("topic", 0, event.sequence, record.key, record.value, record.headers))
        places.append((event.sequence, event.sequence))
    (evidence,) = reader.finish()
    assert [(loss.first, loss.last, loss.reason) for loss in evidence.losses] == [(2, 2, "expired")]
    evidence.table = collect(places)
    assert (evidence.statement_at, evidence.closed_at, evidence.arrivals_before) == (4, 4, 2)
    assert judge(evidence) == []
    await outbox.close()
