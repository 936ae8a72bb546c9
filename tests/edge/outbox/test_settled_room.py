"""Settled events: their rows stay in the file for a while, and count as free room."""

import asyncio
import contextlib
import sqlite3

import pytest

from edge.outbox.stores import open_store, roll_back, rows, states, take
from fogline.errors import SlowDown
from fogline.events.event import Lane, Receipt
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer import file_room
from fogline_edge.outbox.writer import store as module
from fogline_edge.outbox.writer.store import PURGED_BYTES, PURGED_ROWS
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival, make_noise
from fogline_lab.gateway.outbox_use import put, settings
from fogline_lab.waiting import until

BOUND = 4_000_000
PAYLOAD = make_noise(20_000)


async def fill(outbox: Outbox) -> int:
    """Put until the outbox takes no more, or has dropped some. Returns the number of stored events."""
    stored = 0
    while True:
        done = asyncio.get_running_loop().create_future()
        try:
            outbox.port.put(make_arrival(stored, data=PAYLOAD), done.set_result)
        except SlowDown:
            return stored
        looked_at = asyncio.Event()
        outbox.port.act(lambda *_: None, lambda _, looked_at=looked_at: looked_at.set(), urgent=True)
        await within(looked_at.wait(), "not even an act is done")
        if not done.done():
            return stored
        stored += 1
        (stream,) = await outbox.streams.pending()
        if stream.counts.dropped:
            return stored


@pytest.mark.parametrize("when_full", ["block", "drop_oldest"])
@pytest.mark.fault("C10")
async def test_a_full_outbox_whose_events_are_settled_takes_new_events_and_drops_none(folder, when_full):
    outbox = Outbox.open(settings(folder, max_bytes=BOUND, when_full={"telemetry": when_full}))
    stored = await fill(outbox)
    assert stored > 50
    (stream,) = await outbox.streams.pending()
    before = stream.counts.dropped
    for _ in range(3):
        (stream,) = await outbox.streams.pending()
        outbox.streams.settle(stream.stream, stream.head)
        room = asyncio.Event()
        outbox.port.when_room(room.set)
        await within(room.wait(), "settled events give no room")
        for n in range(stored - 20):
            assert await put(outbox, make_arrival(n, data=PAYLOAD)) is Receipt.STORED
    (stream,) = await outbox.streams.pending()
    assert stream.counts.dropped <= before
    assert stream.settled == stream.head - (stored - 20)
    await outbox.close()
    assert (folder / "data" / "outbox.db").stat().st_size <= BOUND


@pytest.mark.parametrize("when_full", ["block", "drop_oldest"])
@pytest.mark.fault("C10")
async def test_nothing_is_dropped_while_settled_rows_are_in_the_file(folder, when_full):
    """More room is needed than one step of deletion gives."""
    outbox = Outbox.open(settings(folder, max_bytes=40_000_000, when_full={"telemetry": when_full}))
    payload, many = make_noise(100_000), 300
    for first in range(0, many, 10):
        await asyncio.gather(*(put(outbox, make_arrival(n, data=payload)) for n in range(first, first + 10)))
    (stream,) = await outbox.streams.pending()
    assert stream.counts.dropped == 0
    outbox.streams.settle(stream.stream, stream.head)
    await outbox.streams.pending()
    assert await put(outbox, make_arrival(data=b"x" * 100)) is Receipt.STORED
    for first in range(0, many, 150):
        receipts = [put(outbox, make_arrival(n, data=payload)) for n in range(first, first + 150)]
        assert set(await asyncio.gather(*receipts)) == {Receipt.STORED}
    (stream,) = await outbox.streams.pending()
    assert (stream.counts.dropped, stream.settled) == (0, many)
    await outbox.close()


async def test_settled_rows_are_deleted_when_the_outbox_closes(folder):
    outbox = Outbox.open(settings(folder))
    for lane in (Lane.TELEMETRY, Lane.ALARM):
        await asyncio.gather(*(put(outbox, make_arrival(n, lane=lane)) for n in range(10)))
    for stream in await outbox.streams.pending():
        outbox.streams.settle(stream.stream, 7)
        outbox.streams.count_sent(stream.stream, 9)
    await outbox.close()
    with sqlite3.connect(folder / "data" / "outbox.db") as connection:
        assert connection.execute("SELECT settled, settled_events, sent FROM stream").fetchall() == [(7, 7, 9)] * 2
        assert connection.execute("SELECT sequence FROM event").fetchall() == [(8,), (9,), (10,)] * 2
    connection.close()


async def test_counts_without_rows_are_saved_when_the_outbox_closes(folder):
    """Nothing but the number of sent events, or of unchanged reports, has changed since the last save."""
    outbox = Outbox.open(settings(folder))
    await put(outbox, make_arrival(1))
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    (stream,) = await outbox.streams.pending()
    outbox.streams.count_sent(stream.stream, 9)
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    (stream,) = await outbox.streams.pending()
    assert stream.counts.sent == 9
    await outbox.close()


# --- the steps of deletion


async def test_accepted_rows_of_many_bytes_are_deleted_step_by_step_at_once(folder, monkeypatch):
    """A large body that has landed must not look as if it waited, nor take the room of the next one."""
    monkeypatch.setattr(module, "PURGED_BYTES", 10_000)
    monkeypatch.setattr(file_room, "PURGE_S", 3600.0)
    outbox = Outbox.open(settings(folder))
    for number in range(20):
        await put(outbox, make_arrival(number, data=make_noise(6000)))
    (stream,) = await outbox.streams.pending()
    outbox.streams.settle(stream.stream, 20)
    with contextlib.closing(sqlite3.connect(folder / "data" / "outbox.db")) as reader:
        await until(lambda: reader.execute("SELECT count(*) FROM event").fetchone() == (0,), "rows stay")
    await outbox.close()


def test_rows_are_deleted_in_steps_of_so_many_rows(memory):
    store = open_store(memory / "outbox.db")
    for lane in (Lane.TELEMETRY, Lane.ALARM):
        take(store, *(make_arrival(n, lane=lane) for n in range(2 * PURGED_ROWS + 10)))
    for stream in store.streams.everything():
        store.accept(stream.stream, 2 * PURGED_ROWS + 5)
    left = []
    while store.purgeable:
        with store.transaction():
            store.purge()
        left.append([each.purged for each in store.streams.everything()])
    assert left == [[PURGED_ROWS] * 2, [2 * PURGED_ROWS] * 2, [2 * PURGED_ROWS + 5] * 2]
    for stream in store.streams.everything():
        assert [row.sequence for row in rows(store, stream)] == list(range(stream.settled + 1, stream.head + 1))
    store.connection.close()


def test_rows_are_deleted_in_steps_of_so_many_bytes_but_at_least_one(memory, monkeypatch):
    monkeypatch.setattr(module, "PURGED_BYTES", 10_000)
    store = open_store(memory / "outbox.db")
    take(store, *(make_arrival(n, data=make_noise(size)) for n, size in enumerate((6000, 30_000, 100, 100, 6000))))
    (stream,) = store.streams.everything()
    store.accept(stream.stream, 5)
    chains = {row.sequence: row.commit_id for row in rows(store, stream)}
    purged = []
    while store.purgeable:
        with store.transaction():
            store.purge()
        purged.append(stream.purged)
        assert stream.purged_commit_id == chains[stream.purged]
        assert store.commit_id_at(stream, stream.purged) == chains[stream.purged]
    assert purged == [1, 2, 5]
    assert PURGED_BYTES > 30_000
    store.connection.close()


@pytest.mark.parametrize("saved", [False, True], ids=["before a save", "after a save"])
@pytest.mark.fault("C10")
def test_a_rollback_leaves_settled_numbers_counts_and_rows_as_they_were(memory, saved):
    store = open_store(memory / "outbox.db")
    take(store, *(make_arrival(n, slot=b"client") for n in range(10)))
    (stream,) = store.streams.everything()
    store.accept(stream.stream, 4)
    with store.transaction():
        store.purge()
    store.accept(stream.stream, 8)
    if saved:
        take(store, make_arrival(9, slot=b"client", again=True))
    store.count_sent(stream.stream, 9)
    before = states(store)
    roll_back(store, store.purge, store.save)
    assert states(store) == before
    (stream,) = store.streams.everything()
    assert (stream.settled, stream.purged, store.purgeable) == (8, 4, 4)
    assert [row.sequence for row in rows(store, stream)] == list(range(5, 11))
    assert take(store, make_arrival(9, slot=b"client", again=True)) == [Receipt.DUPLICATE]
    store.connection.close()


def test_a_group_that_really_does_not_fit_is_rolled_back_as_a_whole(memory):
    """SQLite itself refuses to grow the file in the middle of a group."""
    store = open_store(memory / "outbox.db", max_bytes=400_000)
    take(store, *(make_arrival(n, slot=b"client") for n in range(10)))
    (stream,) = store.streams.everything()
    store.accept(stream.stream, 8)
    before = states(store)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        take(store, *(make_arrival(n, slot=b"other", data=PAYLOAD) for n in range(40)))
    assert states(store) == before
    assert take(store, make_arrival(9, slot=b"client", again=True)) == [Receipt.DUPLICATE]
    assert take(store, make_arrival(39, slot=b"other", again=True, data=PAYLOAD)) == [Receipt.STORED]
    store.connection.close()
