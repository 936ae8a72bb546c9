"""The durable queue, on a real file."""

import asyncio
import contextlib
import sqlite3

import pytest

from fogline.errors import Misconfigured, SlowDown
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt, parse_rfc3339
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.events.report_on_change import ReportPolicy
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline_edge.outbox import port as module
from fogline_edge.outbox import startup
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings
from fogline_lab.amqp import within
from fogline_lab.clock import YEAR_NS, FakeClock
from fogline_lab.events import make_arrival, make_noise
from fogline_lab.gateway.outbox_use import bodies, put, settings


async def test_acknowledged_events_are_there_after_a_restart(folder):
    outbox = Outbox.open(settings(folder))
    receipts = await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(100)))
    assert set(receipts) == {Receipt.STORED}
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    (stream,) = await outbox.streams.pending()
    assert [event.data for event in await bodies(outbox, stream.stream)] == [b'{"n": %d}' % n for n in range(100)]
    assert (stream.head, stream.counts.acknowledged, stream.counts.stored) == (100, 100, 100)
    await outbox.close()


async def test_sequences_are_contiguous_over_restarts_and_commit_ids_are_not_used_twice(folder):
    commit_ids = []
    for _ in range(3):
        outbox = Outbox.open(settings(folder))
        await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(5)))
        (stream,) = await outbox.streams.pending()
        rows = await outbox.streams.read(stream.stream, 0, 100)
        commit_ids = [row.commit_id for row in rows]
        await outbox.close()
    assert [row.sequence for row in rows] == list(range(1, 16))
    assert len({commit_ids[0], commit_ids[5], commit_ids[10]}) == 3


async def test_a_resend_is_recognised_across_a_restart(folder):
    outbox = Outbox.open(settings(folder))
    assert await put(outbox, make_arrival(1, slot=b"7")) is Receipt.STORED
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    assert await put(outbox, make_arrival(1, slot=b"7", again=True)) is Receipt.DUPLICATE
    (stream,) = await outbox.streams.pending()
    assert (stream.head, stream.counts.acknowledged, stream.counts.duplicate) == (1, 2, 1)
    await outbox.close()


async def test_a_resend_within_one_group_is_recognised(folder):
    outbox = Outbox.open(settings(folder))
    first = put(outbox, make_arrival(1, slot=b"7"))
    again = put(outbox, make_arrival(1, slot=b"7", again=True))
    assert await asyncio.gather(first, again) == [Receipt.STORED, Receipt.DUPLICATE]
    await outbox.close()


async def test_suppressed_report_has_no_sequence_and_is_counted_across_a_restart(folder):
    report = ReportPolicy(on_change=True)
    outbox = Outbox.open(settings(folder))
    told = [await put(outbox, make_arrival(n, report=report)) for n in (1, 1, 2, 2)]
    assert told == [Receipt.STORED, Receipt.FILTERED] * 2
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    assert await put(outbox, make_arrival(2, report=report)) is Receipt.FILTERED
    assert await put(outbox, make_arrival(3, report=report)) is Receipt.STORED
    (stream,) = await outbox.streams.pending()
    counts = stream.counts
    assert (stream.head, counts.acknowledged, counts.stored, counts.filtered) == (3, 3, 3, 3)
    await outbox.close()


async def test_minimum_interval_is_kept_by_the_clock_since_boot(folder):
    clock, arrivals = FakeClock(), [make_arrival(n, report=ReportPolicy(min_interval_s=10)) for n in range(4)]
    outbox = Outbox.open(settings(folder), clock=clock)
    told = [await put(outbox, arrivals[0])]
    for seconds, arrival in zip((9, 1, 10), arrivals[1:], strict=True):
        clock.go_on(seconds)
        clock.wall_ns -= YEAR_NS
        told.append(await put(outbox, arrival))
    assert told == [Receipt.STORED, Receipt.FILTERED, Receipt.STORED, Receipt.STORED]
    await outbox.close()


async def test_a_statement_says_how_much_was_no_news(folder):
    outbox = Outbox.open(settings(folder, statement_s=0.05))
    report = ReportPolicy(on_change=True)
    for _ in range(3):
        await put(outbox, make_arrival(1, report=report))
    stated = asyncio.Event()
    outbox.streams.start_sending(lambda _: stated.set())
    await put(outbox, make_arrival(2))
    await within(stated.wait(), "nothing was committed")
    (stream,) = await outbox.streams.pending()
    filtered = 0
    while not filtered:  # on a busy machine a statement came before anything was filtered
        stated.clear()
        events = [each for each in await bodies(outbox, stream.stream) if each.content_type == STATEMENT_CONTENT_TYPE]
        filtered = decode_statement(events[-1].data).counts.filtered if events else 0
        if not filtered:
            await within(stated.wait(), "nothing was stated")
    assert filtered == 2
    await outbox.close()


async def test_each_lane_has_a_stream_of_its_own(folder):
    outbox = Outbox.open(settings(folder))
    for lane in Lane:
        await put(outbox, make_arrival(lane=lane))
    assert sorted(stream.lane for stream in await outbox.streams.pending()) == sorted(Lane)
    await outbox.close()


async def test_settled_rows_go_and_the_rest_stays(folder):
    outbox = Outbox.open(settings(folder))
    await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(10)))
    (stream,) = await outbox.streams.pending()
    outbox.streams.count_sent(stream.stream, 10)
    outbox.streams.settle(stream.stream, 7)
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    (stream,) = await outbox.streams.pending()
    assert (stream.settled, stream.counts.settled, stream.counts.sent) == (7, 7, 10)
    assert [event.sequence for event in await bodies(outbox, stream.stream)] == [8, 9, 10]
    own = await outbox.streams.own(stream.stream, 8, 0)
    assert own.settled == 7
    assert own.settled_chain
    assert own.chain_at_mark
    await outbox.close()


async def test_statement_has_the_counts_before_it(folder):
    outbox = Outbox.open(settings(folder, statement_s=0.05))
    await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(10)))
    (stream,) = await outbox.streams.pending()

    async def stated():
        while True:
            events = await bodies(outbox, stream.stream)
            if events[-1].content_type == STATEMENT_CONTENT_TYPE:
                return events[-1]

    event = await within(stated(), "no statement came")
    counts = decode_statement(event.data).counts
    assert (event.device, counts.acknowledged, counts.stored) == ("gw-1", 10, event.sequence - 1)
    await outbox.close()


async def test_a_statement_in_the_transaction_of_its_events_writes_none_of_them_twice(folder):
    outbox = Outbox.open(settings(folder, statement_s=0.002))
    for n in range(5):
        await put(outbox, make_arrival(n))
        await put(outbox, make_arrival(n, lane=Lane.ALARM))
    for stream in await outbox.streams.pending():
        events = await bodies(outbox, stream.stream)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert sum(event.content_type != STATEMENT_CONTENT_TYPE for event in events) == 5
        assert len(events) > 5
    await outbox.close()


async def test_a_refused_event_is_set_aside_and_a_gap_record_takes_its_place(folder):
    outbox = Outbox.open(settings(folder))
    await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(3)))
    (stream,) = await outbox.streams.pending()
    await outbox.streams.quarantine(stream.stream, 2, "amqp:decode-error", "not readable")
    events = await bodies(outbox, stream.stream)
    assert [event.content_type for event in events] == ["application/json", GAP_CONTENT_TYPE, "application/json"]
    gap = decode_gap(events[1].data)
    assert (gap.first, gap.last, gap.device) == (2, 2, "lamp-1")
    await outbox.close()
    kept = sqlite3.connect(folder / "data" / "outbox.db").execute("SELECT condition, body FROM quarantine").fetchall()
    assert kept[0][0] == "amqp:decode-error"
    assert decode_event(kept[0][1]).data == b'{"n": 1}'


async def test_a_gap_record_that_is_refused_too_stays_where_it_is(folder):
    outbox = Outbox.open(settings(folder))
    await put(outbox, make_arrival(1))
    (stream,) = await outbox.streams.pending()
    assert await outbox.streams.quarantine(stream.stream, 1, "amqp:decode-error", "not readable")
    assert not await outbox.streams.quarantine(stream.stream, 1, "amqp:not-allowed", "nor that")
    assert await put(outbox, make_arrival(2)) is Receipt.STORED
    assert [event.content_type for event in await bodies(outbox, stream.stream)] == [GAP_CONTENT_TYPE, "application/json"]
    await outbox.close()


@pytest.mark.parametrize("restarted", [False, True])
async def test_no_more_is_read_than_is_wanted(folder, restarted):
    """From memory, and from the file."""
    outbox = Outbox.open(settings(folder))
    await asyncio.gather(*(put(outbox, make_arrival(n, data=bytes(10_000))) for n in range(10)))
    if restarted:
        await outbox.close()
        outbox = Outbox.open(settings(folder))
    (stream,) = await outbox.streams.pending()
    rows = await outbox.streams.read(stream.stream, 0, 10)
    two = len(rows[0].body) + len(rows[1].body) + 2
    assert len(rows) == 10
    for limit_bytes, expected in [(1, 1), (two - 1, 1), (two, 2), (10 * two, 10)]:
        assert len(await outbox.streams.read(stream.stream, 0, 10, limit_bytes)) == expected
    await outbox.close()


async def test_event_has_its_own_time_in_a_shared_transaction(folder):
    clock = FakeClock()
    outbox = Outbox.open(settings(folder), clock=clock)
    await put(outbox, make_arrival(1))
    clock.go_on(5)
    outbox.port.keep("a key", b"a value", lambda: None)
    await put(outbox, make_arrival(2))
    (stream,) = await outbox.streams.pending()
    first, second = (parse_rfc3339(event.recordedtime) for event in await bodies(outbox, stream.stream))
    assert second - first == 5_000_000_000
    await outbox.close()


async def test_b10_a_start_forgets_the_closed_streams_that_are_empty(folder, monkeypatch):
    monkeypatch.setattr(startup, "KEPT_STREAMS", 2)
    outbox = Outbox.open(settings(folder))
    for n in range(4):
        await asyncio.gather(*(put(outbox, make_arrival(10 * n + k)) for k in range(3)))
        if n < 3:
            await outbox.streams.split_backlog(frozenset({Lane.TELEMETRY}), 1)
    empty, quarantined, waiting, now = [each.stream for each in await outbox.streams.pending()]
    assert await outbox.streams.quarantine(quarantined, 1, "amqp:decode-error", "no")
    for name in (empty, quarantined):
        outbox.streams.settle(name, 4)
    outbox.streams.settle(now, 3)
    await outbox.close()

    def known() -> list[str]:
        with contextlib.closing(sqlite3.connect(folder / "data" / "outbox.db")) as connection:
            return [name for (name,) in connection.execute("SELECT stream FROM stream ORDER BY number")]

    assert known() == [empty, quarantined, waiting, now]
    outbox = Outbox.open(settings(folder))
    assert known() == [quarantined, waiting, now]
    assert [each.stream for each in await outbox.streams.pending()] == [waiting, now]
    await put(outbox, make_arrival(99))
    assert [each.head for each in await outbox.streams.pending()] == [4, 4]
    await outbox.close()


@pytest.mark.parametrize(("synced", "waited_ms"), [(True, 7000), (False, 0)])
async def test_b10_hello_knows_how_long_the_first_event_has_waited(folder, synced, waited_ms):
    clock = FakeClock(synchronized=synced)
    outbox = Outbox.open(settings(folder), clock=clock)
    await put(outbox, make_arrival(1))
    clock.go_on(5)
    await put(outbox, make_arrival(2))
    clock.go_on(2)
    (stream,) = await outbox.streams.pending()
    own = await outbox.streams.own(stream.stream, 0, clock.time_ns())
    assert own.waited_ms == waited_ms
    outbox.streams.settle(stream.stream, 2)
    await outbox.streams.pending()
    assert (await outbox.streams.own(stream.stream, 0, clock.time_ns())).waited_ms == 0
    await outbox.close()


async def test_a_stream_that_cannot_be_trusted_begins_anew_with_the_same_ids(folder):
    outbox = Outbox.open(settings(folder))
    await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(10)))
    (old,) = await outbox.streams.pending()
    before = await bodies(outbox, old.stream)
    await outbox.streams.reopen(old.stream, 4, "the chains differ")
    (new,) = await outbox.streams.pending()
    assert new.stream != old.stream
    after = await bodies(outbox, new.stream)
    assert [event.id for event in after] == [event.id for event in before[4:]]
    assert [event.sequence for event in after] == list(range(1, 7))
    assert all(event.replayed for event in after)
    await put(outbox, make_arrival(99))
    (again,) = await outbox.streams.pending()
    assert (again.stream, again.head) == (new.stream, 7)
    await outbox.close()


@pytest.mark.fault("C10")
async def test_a_full_outbox_stops_acknowledging_and_heals_when_rows_go(folder):
    outbox = Outbox.open(settings(folder, max_bytes=1_000_000, group_commit_ms=1))
    acknowledged, payload = [], make_noise(20_000)
    room = asyncio.Event()
    for n in range(200):
        try:
            outbox.port.put(make_arrival(n, data=payload), lambda _, n=n: acknowledged.append(n))
        except SlowDown:
            break
        looked_at = asyncio.Event()
        outbox.port.act(lambda *_: None, lambda _, event=looked_at: event.set(), urgent=True)
        await within(looked_at.wait(), "not even an act is done")
    else:
        pytest.fail("a megabyte took four")
    (stream,) = await outbox.streams.pending()
    assert stream.head == len(acknowledged)
    assert (folder / "data" / "outbox.db").stat().st_size <= 1_000_000
    assert await put(outbox, make_arrival(lane=Lane.REPLY, data=payload)) is Receipt.STORED, "replies keep their reserve"
    outbox.port.when_room(room.set)
    outbox.streams.settle(stream.stream, stream.head)
    await within(room.wait(), "no room came")
    assert await put(outbox, make_arrival(data=payload)) is Receipt.STORED
    assert acknowledged == list(range(len(acknowledged)))
    await outbox.close()


async def test_too_much_that_waits_is_pushed_back(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_EVENTS", 100)
    outbox = Outbox.open(settings(folder))
    receipts = []
    for n in range(100):
        outbox.port.put(make_arrival(n), receipts.append)
    with pytest.raises(SlowDown):
        outbox.port.put(make_arrival(100), receipts.append)
    room = asyncio.Event()
    outbox.port.when_room(room.set)
    await within(room.wait(), "no room came")
    await outbox.close()
    assert len(receipts) == 100


async def test_one_folder_serves_one_gateway_at_a_time(folder):
    outbox = Outbox.open(settings(folder))
    with pytest.raises(Misconfigured, match="in use by another fogline-edge process"):
        Outbox.open(settings(folder))
    await outbox.close()
    (folder / "x").touch()
    with pytest.raises(Misconfigured, match="cannot be used"):
        Outbox.open(EdgeSettings(tenant="t", gateway="g", data=str(folder / "x" / "y")))


async def test_a_folder_belongs_to_its_gateway(folder):
    await Outbox.open(settings(folder)).close()
    with pytest.raises(Misconfigured, match="belongs to gateway acme/gw-1"):
        Outbox.open(EdgeSettings(tenant="acme", gateway="gw-2", data=str(folder / "data")))
