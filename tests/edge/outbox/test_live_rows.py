"""Committed rows that the uplink gets without asking the writer's thread: each once, in order, and none is left out."""

import asyncio
from random import Random

import pytest

from fogline_edge.outbox import live_rows
from fogline_edge.outbox.live_rows import LiveRows
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.streams import EventRecord
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings


def rows(first, last, size=10):
    return [EventRecord(sequence, b"", b"x" * size) for sequence in range(first, last + 1)]


def sequences(taken):
    return None if taken is None else [row.sequence for row in taken]


def test_rows_are_taken_once_in_order_and_within_the_limits():
    live = LiveRows()
    assert live.take("s", 0, 10, None) is None
    live.follow("s", 3)
    assert sequences(live.take("s", 3, 10, None)) == []
    assert live.add("s", rows(4, 9))
    assert sequences(live.take("s", 3, 2, None)) == [4, 5]
    assert sequences(live.take("s", 5, 10, 25)) == [6, 7]
    assert sequences(live.take("s", 7, 10, 5)) == [8], "at least one, whatever its size"
    assert sequences(live.take("s", 8, 10, None)) == [9]
    assert sequences(live.take("s", 9, 10, None)) == []


@pytest.mark.parametrize("after", [0, 2, 4])
def test_a_reader_that_goes_back_asks_the_writer(after):
    live = LiveRows()
    live.follow("s", 3)
    live.add("s", rows(4, 9))
    assert live.take("s", after, 10, None) is None
    assert live.take("s", 3, 10, None) is None, "and does so until it has read to the end again"


def test_too_many_rows_are_not_kept(monkeypatch):
    monkeypatch.setattr(live_rows, "MAX_BYTES", 100)
    live = LiveRows()
    live.follow("s", 0)
    assert live.add("s", rows(1, 10))
    assert not live.add("s", rows(11, 11))
    assert live.take("s", 0, 10, None) is None
    assert not live.add("s", rows(12, 12)), "nobody follows it"


async def settle_down(outbox):
    """Let everything pass that the writer has said so far."""
    await outbox.streams.pending()


@pytest.mark.parametrize("seed", range(4))
async def test_reader_gets_every_event_across_faults(folder, monkeypatch, seed):
    """Commits, statements, reads, overflows, ends of connections and quarantines in any order."""
    monkeypatch.setattr(live_rows, "MAX_BYTES", 400)
    random, read = Random(seed), []
    outbox = Outbox.open(settings(folder))
    await put(outbox, make_arrival(0))
    (stream,) = await outbox.streams.pending()
    for _ in range(300):
        match random.randrange(10):
            case 0:
                outbox.streams.stop_sending()
            case 1:
                await settle_down(outbox)
            case 2 if read:
                await outbox.streams.quarantine(stream.stream, random.choice(read), "c", "d")
            case 3 | 4 | 5:
                limits = random.randrange(1, 9), random.choice((None, 50, 900))
                read += [row.sequence for row in await outbox.streams.read(stream.stream, len(read), *limits)]
            case _:
                await asyncio.gather(*(put(outbox, make_arrival(n)) for n in range(random.randrange(1, 4))))
    while found := await within(outbox.streams.read(stream.stream, len(read), 100), "the reader gets no answer"):
        read += [row.sequence for row in found]
    (stream,) = await outbox.streams.pending()
    assert read == list(range(1, stream.head + 1))
    await outbox.close()


async def test_after_the_end_of_a_connection_no_row_counts_as_sent(folder):
    outbox = Outbox.open(settings(folder))
    await put(outbox, make_arrival(0))
    (stream,) = await outbox.streams.pending()
    assert len(await outbox.streams.read(stream.stream, 0, 10)) == 1
    await put(outbox, make_arrival(1))
    outbox.streams.stop_sending()
    await put(outbox, make_arrival(2))
    handed = await outbox._calls.call(lambda store: dict(store.handed))
    assert handed == {stream.stream: 2}
    await outbox.close()
