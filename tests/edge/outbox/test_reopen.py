"""G8: a stream that cannot be trusted is moved in steps: arrivals do not wait for it, and a kill loses nothing of it."""

import asyncio
import itertools

import pytest

from edge.outbox.stores import open_store, take
from fogline.events.codec import decode_event
from fogline.events.gap import GAP_CONTENT_TYPE, GapReason, Lost, decode_gap
from fogline.gateway.hello import Mark, Reopen, resume
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer import renumbering, stream_views
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import bodies, put, settings

EVENTS = 2 * renumbering.MOVED_ROWS + 10


async def test_g8_an_arrival_is_stored_between_two_steps(folder):
    outbox = Outbox.open(settings(folder))
    await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(EVENTS)))
    (old,) = await outbox.streams.pending()
    moved = asyncio.create_task(outbox.streams.reopen(old.stream, 0, "it is a test"))
    arrived = asyncio.create_task(put(outbox, make_arrival(EVENTS)))
    first, _ = await asyncio.wait((moved, arrived), return_when=asyncio.FIRST_COMPLETED)
    assert first == {arrived}, "the arrival waited for the whole move"
    await moved
    (new,) = await outbox.streams.pending()
    after = await bodies(outbox, new.stream)
    assert sorted(event.data for event in after) == sorted(b'{"n": %d}' % n for n in range(EVENTS + 1))
    assert [event.sequence for event in after] == list(range(1, EVENTS + 2))
    assert [event.data for event in after if not event.replayed] == [b'{"n": %d}' % EVENTS]
    await outbox.close()


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(
    "mark",
    [
        lambda stream, _: Mark(stream, EVENTS + 5, EVENTS + 5, "ff" * 16),
        lambda stream, _: Mark(stream, 3, 3, "ff" * 16),
        lambda stream, _: Mark(stream, EVENTS, EVENTS, "ff" * 16),
        lambda stream, _: Mark(stream, renumbering.MOVED_ROWS, renumbering.MOVED_ROWS, "ff" * 16),
        lambda stream, chain: Mark(stream, 3, 3, chain),
    ],
    ids=["an older copy", "another copy", "another copy at the head", "another copy at a step", "Kafka lost data"],
)
@pytest.mark.fault("C13")
def test_g8_a_move_that_a_kill_cut_short_goes_on_at_the_next_hello(folder, mark, steps):
    store = open_store(folder / "outbox.db")
    take(store, *(make_arrival(n) for n in range(EVENTS)))
    (stream,) = store.streams.opened()
    old, ids = stream.stream, [decode_event(row.body).id for row in store.events(stream, 5, EVENTS)]
    store.accept(old, 5)
    own = stream_views.own(store, old, 3, 0)
    assert own is not None
    known = mark(old, own.chain_at_mark)
    for done in itertools.count():
        own = stream_views.own(store, old, known.chain_sequence, 0)
        assert own is not None
        verdict = resume(own, known)
        assert isinstance(verdict, Reopen)
        if not renumbering.reopen(store, old, own.settled, verdict.why):
            break
        if done == steps:
            store.connection.close()
            store = open_store(folder / "outbox.db")
    (new,) = [each for each in store.streams.pending() if each.stream != old]
    after = [decode_event(row.body) for row in store.events(new, 0, EVENTS)]
    assert [event.id for event in after] == ids
    assert not store.streams.get(old).backlog
    store.connection.close()


def test_g8_a_step_of_large_events_moves_few_of_them(folder):
    store = open_store(folder / "outbox.db")
    half = renumbering.MOVED_BYTES // 2
    take(store, *(make_arrival(n, data=b"x" * half) for n in range(6)))
    (stream,) = store.streams.opened()
    assert renumbering.reopen(store, stream.stream, 0, "it is a test")
    assert (stream.backlog, store.streams.opened()[0].head) == (5, 1)
    store.connection.close()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.fault("K14")
def test_accepted_events_that_the_bridge_has_no_more_are_named_once(folder, killed):
    """Of 12 accepted events the bridge has 7 when it has another Kafka. The move of the others takes three steps."""
    store = open_store(folder / "outbox.db")
    take(store, *(make_arrival(n) for n in range(EVENTS)))
    (old,) = store.streams.opened()
    store.accept(old.stream, 12)
    while renumbering.reopen(store, old.stream, store.streams.get(old.stream).settled, "it is a test", 7):
        if killed:
            store.connection.close()
            store = open_store(folder / "outbox.db")
    (new,) = store.streams.pending()
    after = [decode_event(row.body) for row in store.events(new, 0, EVENTS + 1)]
    gaps = [decode_gap(event.data) for event in after if event.content_type == GAP_CONTENT_TYPE]
    assert [(gap.reason, gap.lost) for gap in gaps] == [(GapReason.LOST, Lost(old.stream, 8, 12))]
    assert len(after) == EVENTS - 12 + 1
    store.connection.close()
