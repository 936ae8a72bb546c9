"""Lanes that drop their oldest events when the outbox is nearly full, and the events that the bridge then gets."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.outbox.damaged import mark_damaged
from edge.outbox.stores import open_store, rows, take
from fogline.errors import SlowDown
from fogline.events.codec import Range, chain_of, decode_batch, decode_event, encode_batch
from fogline.events.event import Lane, Receipt
from fogline.events.gap import GAP_CONTENT_TYPE, GapReason, Lost, above, decode_gap
from fogline.gateway.hello import Mark, Reopen, Resume, resume
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE
from fogline_edge.operate.status import read_status
from fogline_edge.outbox.file.data_folder import RunEnd
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.streams import DroppedRange
from fogline_edge.outbox.salvage.integrity import examine
from fogline_edge.outbox.writer import drop_oldest
from fogline_edge.settings import EdgeSettings, OutboxSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.events import BEACON, make_arrival, make_noise

BOUND = 1_000_000


def settings(folder: Path, *lanes: str, **outbox) -> EdgeSettings:
    when_full = dict.fromkeys(lanes or ("telemetry",), "drop_oldest")
    return EdgeSettings(
        tenant="acme",
        gateway="gw-1",
        data=str(folder / "data"),
        outbox=OutboxSettings(**{"max_bytes": BOUND, "group_commit_ms": 1, "when_full": when_full, **outbox}),
        uplink=UplinkSettings(statement_s=3600, batch_events=10, batches_in_flight=4),
    )


async def put(outbox: Outbox, *numbers: int, size: int = 1000, lane: Lane = Lane.TELEMETRY) -> None:
    """As an adapter does it: who is told to slow down waits until there is room."""
    told = []
    for n in numbers:
        data = b'{"n": %d, "x": "%s"}' % (n, make_noise(size))
        done = asyncio.get_running_loop().create_future()
        while True:
            try:
                outbox.port.put(make_arrival(data=data, lane=lane), done.set_result)
                break
            except SlowDown:
                room = asyncio.Event()
                outbox.port.when_room(room.set)
                await within(room.wait(), "no room comes")
        told.append(done)
    assert set(await within(asyncio.gather(*told), "not acknowledged")) <= {Receipt.STORED}


async def rows_of(outbox: Outbox, lane: Lane = Lane.TELEMETRY):
    stream = next(each for each in await outbox.streams.pending() if each.lane is lane)
    return stream, await outbox.streams.read(stream.stream, stream.settled, 100_000)


@pytest.mark.fault("C10")
async def test_a_lane_with_drop_oldest_keeps_its_newest_events_and_a_gap_record_names_the_rest(folder):
    outbox, held = Outbox.open(settings(folder)), []
    for first in range(0, 1000, 50):
        await put(outbox, *range(first, first + 50))
        held.append(await outbox.read_journal(lambda file, _: file.execute("SELECT count(*) FROM event").fetchone()[0]))
    stream, (gap, *rows) = await rows_of(outbox)
    assert (gap.sequence - gap.spans, rows[0].sequence, rows[-1].sequence) == (0, gap.sequence + 1, 1000)
    assert [json.loads(decode_event(row.body).data)["n"] for row in rows] == list(range(gap.sequence, 1000))
    told = decode_gap(decode_event(gap.body).data)
    assert (told.reason, told.first, told.last) == (GapReason.DROPPED, 1, gap.sequence)
    assert (stream.counts.dropped, stream.counts.acknowledged, stream.head) == (gap.sequence, 1000, 1000)
    assert max(held[10:]) > 150, "half of the room is used"
    await outbox.close()
    assert (folder / "data" / "outbox.db").stat().st_size <= BOUND
    outbox = Outbox.open(settings(folder))
    _, again = await rows_of(outbox)
    assert again == [gap, *rows]
    await outbox.close()
    assert [each.name for each in (folder / "data").iterdir() if "damaged" in each.name] == []


@pytest.mark.fault("C10")
async def test_a_lane_that_blocks_keeps_all_events_while_another_drops_its_oldest(folder):
    outbox = Outbox.open(settings(folder))
    for turn in range(25):
        await put(outbox, *range(20), size=2500, lane=Lane.TELEMETRY)
        await put(outbox, *range(4 * turn, 4 * turn + 4), lane=Lane.ALARM)
    alarms, rows = await rows_of(outbox, Lane.ALARM)
    assert (alarms.counts.dropped, len(rows)) == (0, 100)
    telemetry, _ = await rows_of(outbox)
    assert telemetry.counts.dropped > 0
    await outbox.close()


@pytest.mark.fault("C10")
async def test_when_nothing_is_left_to_let_go_of_devices_wait_and_it_heals(folder):
    outbox = Outbox.open(settings(folder, "telemetry"))
    await put(outbox, *range(5))
    filling = asyncio.create_task(put(outbox, *range(1000), lane=Lane.ALARM))
    waited = 0
    while not filling.done():
        streams = await outbox.streams.pending()
        if outbox.port._full:
            waited += 1
            assert all(each.counts.dropped == 0 for each in streams if each.lane is Lane.ALARM)
            for stream in streams:
                outbox.streams.settle(stream.stream, stream.head)
    await filling
    assert waited
    await outbox.close()


@pytest.mark.parametrize("lanes", [("telemetry",), ("bulk",)], ids=["lets go", "blocks"])
async def test_a_group_that_is_larger_than_the_file_is_taken_as_far_as_it_fits(folder, lanes):
    outbox = Outbox.open(settings(folder, *lanes))
    filling = asyncio.create_task(put(outbox, *range(24), size=100_000))
    while not filling.done():
        for stream in await outbox.streams.pending():
            outbox.streams.settle(stream.stream, stream.settled + 1)
    await filling
    (stream,) = await outbox.streams.pending()
    assert stream.head == 24
    assert (stream.counts.dropped > 0) == ("telemetry" in lanes)
    await outbox.close()


async def test_dropped_gap_record_is_quoted_in_the_new_one(folder):
    outbox = Outbox.open(settings(folder))
    await put(outbox, 0, 1, 2)
    (stream,) = await outbox.streams.pending()
    await outbox.streams.quarantine(stream.stream, 2, "amqp:decode-error", "no good")
    for first in range(0, 1000, 50):
        await put(outbox, *range(first, first + 50))
    _, (gap, *_) = await rows_of(outbox)
    assert decode_gap(decode_event(gap.body).data).detail.startswith(
        "the outbox was full; 2..2 quarantined: amqp:decode-error no good"
    )
    await outbox.close()


class Bridge:
    """The bridge's view of a stream: `events` by number, `gaps` by sequence. `seen`: how often it has each sequence."""

    def __init__(self, stream: str) -> None:
        self.mark = Mark(stream)
        self.seen: Counter[int] = Counter()
        self.events: set[int] = set()
        self.gaps: set[int] = set()

    def commit(self, span: Range, bodies: list[bytes]) -> None:
        assert span.first <= self.mark.hwm + 1, "a hole"
        for event in above(decode_batch(span, encode_batch(span, bodies, BEACON)), self.mark.hwm):
            first = event.sequence
            if event.content_type == GAP_CONTENT_TYPE:
                first = decode_gap(event.data).first
                self.gaps |= set(range(first, event.sequence + 1))
            elif event.content_type != STATEMENT_CONTENT_TYPE:
                self.events.add(json.loads(event.data)["n"])
            self.seen.update(range(first, event.sequence + 1))
        if span.last > self.mark.hwm:
            self.mark = Mark(span.stream, span.last, span.last, span.chain.hex())


class Line:
    """An outbox, and connections that end at any moment. Each batch: lost, committed without an answer, or settled."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.bridges: dict[str, Bridge] = {}
        self.acknowledged = 0
        self.restarts = 0
        self.outbox = Outbox.open(settings(folder))

    async def store(self, count: int) -> None:
        await put(self.outbox, *range(self.acknowledged, self.acknowledged + count), size=self.random.choice([100, 4000]))
        self.acknowledged += count

    async def restart(self) -> None:
        self.restarts += 1
        await self.outbox.close()
        self.outbox = Outbox.open(settings(self.folder))

    async def connect(self, batches: int) -> None:
        """Hello, then so many batches of each stream."""
        for stream in await self.outbox.streams.pending():
            bridge = self.bridges.setdefault(stream.stream, Bridge(stream.stream))
            own = await self.outbox.streams.own(stream.stream, bridge.mark.chain_sequence, 0)
            verdict = resume(own, bridge.mark)
            assert isinstance(verdict, Resume), verdict
            if verdict.settled:
                self.outbox.streams.settle(stream.stream, verdict.settled)
        for stream in await self.outbox.streams.pending():
            await self._send(stream, batches)

    async def _send(self, stream, batches: int) -> None:
        bridge, sent, settled, alive = self.bridges[stream.stream], stream.settled, stream.settled, True
        for _ in range(batches):
            rows = await self.outbox.streams.read(stream.stream, sent, self.random.randint(1, 10))
            if not rows or sent - settled > 30:
                break
            first = rows[0].sequence - rows[0].spans + 1
            assert first == sent + 1
            span = Range("gw-1", stream.stream, Lane.TELEMETRY, first, rows[-1].sequence, chain_of(rows[-1].commit_id))
            sent = span.last
            if self.random.random() < 0.3:
                await self.store(self.random.randint(1, 60))
            if alive and self.random.random() < 0.85:
                bridge.commit(span, [row.body for row in rows])
                if self.random.random() < 0.6:
                    settled = sent
                    self.outbox.streams.settle(stream.stream, settled)
                elif self.random.random() < 0.5:
                    sent = settled  # released, though it is there
            else:
                alive = False

    async def drain(self) -> None:
        """From now on all goes well."""
        self.random = random.Random(1)
        self.random.random = lambda: 0.35  # type: ignore[method-assign]
        while any(each.settled < each.head for each in await self.outbox.streams.pending()):
            await self.connect(10_000)


@pytest.mark.parametrize("parted", [False, True], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.fault("C10", "C3")
async def test_every_sequence_is_there_once_as_an_event_or_a_gap_at_any_point_of_a_drop(folder, seed, parted):
    """The bridge decides what is lost: what it has is no gap, though the gateway dropped it while it was under way."""
    line = Line(folder, seed)
    for _ in range(40):
        await line.store(line.random.choice([1, 10, 200]))
        if line.random.random() < 0.1:
            await line.restart()
        if line.random.random() < 0.6:
            if parted:
                await line.outbox.streams.split_backlog(frozenset({Lane.TELEMETRY}), 50)
            await line.connect(line.random.randint(1, 40))
    await line.drain()
    status = read_status(folder / "data")
    await line.outbox.close()
    events, gaps = set[int](), 0
    for name, head in [(each["stream"], each["head"]) for each in status["streams"]]:
        bridge = line.bridges[name]
        assert set(bridge.seen) == set(range(1, head + 1)), "a number is missing"
        assert max(bridge.seen.values(), default=1) == 1, "a number is there twice"  # a new stream may be empty
        assert head not in bridge.gaps or not parted or name == status["streams"][-1]["stream"], "a last word is dropped"
        events, gaps = events | bridge.events, gaps + len(bridge.gaps)
    missing = set(range(line.acknowledged)) - events
    assert len(missing) == gaps, "what is a gap is lost, what is lost is a gap"
    assert parted == (len(status["streams"]) > 1)
    assert gaps <= status["dropped"], "more was dropped than the gateway says"
    if not line.restarts:
        assert status["dropped"] - gaps < 0.1 * line.acknowledged, "the gateway says far more than was dropped"


async def test_ambiguous_position_of_the_bridge_opens_a_new_stream(folder):
    """The gap record says of itself what it stood for, at whatever place it is then."""
    outbox = Outbox.open(settings(folder))
    for first in range(0, 1000, 50):
        await put(outbox, *range(first, first + 50))
    (stream,) = await outbox.streams.pending()
    far = stream.counts.dropped - 5
    verdict = resume(await outbox.streams.own(stream.stream, far, 0), Mark(stream.stream, far, far, "ab" * 16))
    assert isinstance(verdict, Reopen)
    await outbox.streams.reopen(stream.stream, stream.settled, verdict.why)
    (new,) = await outbox.streams.pending()
    gap, *rows = await outbox.streams.read(new.stream, 0, 100_000)
    told = decode_gap(decode_event(gap.body).data)
    assert (gap.sequence, gap.spans, told.first, told.last) == (1, 1, 1, 1)
    assert (told.lost.stream, told.lost.first, told.lost.last) == (stream.stream, 1, stream.counts.dropped)
    assert [row.sequence for row in rows] == list(range(2, 2 + len(rows)))
    assert json.loads(decode_event(rows[-1].body).data)["n"] == 999
    await outbox.close()


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=20))
def test_settled_part_of_a_sent_gap_was_dropped_and_the_rest_was_not(steps):
    dropped, head, settled, count = DroppedRange(), 0, 0, 0
    for size, sent in steps:
        count += size
        head += size
        dropped.upto = head
        if sent:
            dropped.send(settled)
            assert dropped.settle(settled, head) == 0
            settled, dropped.upto = head, 0
    assert dropped.settle(settled, head) == head - settled


@pytest.mark.fault("C8", "C10")
async def test_dropped_events_stay_explained_after_salvage(folder):
    outbox = Outbox.open(settings(folder))
    for first in range(0, 1000, 50):
        await put(outbox, *range(first, first + 50))
    stream, (_, *rows) = await rows_of(outbox)
    await outbox.close()
    mark_damaged(folder)
    outbox = Outbox.open(settings(folder))
    _, salvaged = await rows_of(outbox)
    gap, *events = [decode_event(row.body) for row in salvaged]
    told = decode_gap(gap.data)
    assert (told.reason, told.lost) == (GapReason.DROPPED, Lost(stream.stream, 1, stream.counts.dropped))
    assert [json.loads(event.data)["n"] for event in events] == list(range(1000 - len(rows), 1000))
    await outbox.close()


def test_dropped_event_that_had_landed_does_not_count_as_dropped_after_a_restart(folder):
    store = open_store(folder / "outbox.db")
    take(store, *(make_arrival(n) for n in range(9)))
    with store.transaction():
        (stream,) = store.streams.everything()
        drop_oldest._drop(store, stream, 5)
    store.connection.close()
    store = open_store(folder / "outbox.db")
    (stream,) = store.streams.everything()
    assert (stream.counts.dropped, stream.dropped.upto) == (5, 5)
    stream.dropped.sent_upto = 0  # the gap record was not sent, so the bridge has the events themselves
    store.accept(stream.stream, 9)
    with store.transaction():
        store.purge()
    store.connection.close()
    store = open_store(folder / "outbox.db")
    (again,) = store.streams.everything()
    assert (again.counts.dropped, again.dropped.upto, again.settled) == (0, 0, 9)
    store.connection.close()


def test_settled_events_of_a_dropped_range_are_purged_in_one_step(folder):
    """The bridge had accepted some of the dropped events: the gap record stays for the others."""
    store = open_store(folder / "outbox.db")
    take(store, *(make_arrival(n) for n in range(9)))
    with store.transaction():
        (stream,) = store.streams.everything()
        store.handed[stream.stream] = 9
        drop_oldest._drop(store, stream, 6)
    stream.dropped.sent_upto = 0
    chain = store.commit_id_at(stream, 4)
    store.accept(stream.stream, 4)
    with store.transaction():
        store.purge()
    assert (stream.purged, store.purgeable) == (4, 0)
    assert stream.purged_commit_id == chain
    assert [row.sequence for row in rows(store, stream)] == [6, 7, 8, 9]
    store.connection.close()
    assert examine(folder / "outbox.db", last=RunEnd.OPEN, owner=None) is None
