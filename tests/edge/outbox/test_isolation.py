"""One thing that goes wrong is its own affair: what else is in its group is stored, acknowledged, and goes on."""

import asyncio

from fogline.dead_letter import decode_dead_letter
from fogline.events.codec import decode_event
from fogline.events.event import Lane, Receipt
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import bodies, put, settings

UNSTORABLE = {"properties": "\ud800"}
"""No adapter lets such a character through; it stands for anything that raises in the writer."""


async def test_a_callback_that_raises_does_not_stop_the_others_of_its_group(folder, caplog):
    """G15."""
    outbox, told = Outbox.open(settings(folder)), []
    outbox.port.put(make_arrival(1), told.append)
    outbox.port.put(make_arrival(2), lambda _: told.missing)
    assert await put(outbox, make_arrival(3)) is Receipt.STORED
    assert told == [Receipt.STORED]
    assert "the callback of a commit failed" in caplog.text
    room = asyncio.Event()
    outbox.port.when_room(room.set)
    await within(room.wait(), "no room came")
    assert (outbox.port._waiting_events, outbox.port._waiting_bytes) == (0, 0)
    await outbox.close()


async def test_an_arrival_that_cannot_be_stored_becomes_a_dead_letter_and_the_others_are_stored(folder):
    """G15: it ended the process, and again whenever its device sent it again."""
    outbox = Outbox.open(settings(folder))
    arrivals = [make_arrival(n, **(UNSTORABLE if n == 5 else {})) for n in range(9)]
    receipts = await asyncio.gather(*(put(outbox, each) for each in arrivals))
    assert receipts == [Receipt.DEAD if n == 5 else Receipt.STORED for n in range(9)]
    streams = {each.lane: each.stream for each in await outbox.streams.pending()}
    stored = await bodies(outbox, streams[Lane.TELEMETRY])
    assert [event.data for event in stored] == [b'{"n": %d}' % n for n in range(9) if n != 5]
    (letter,) = [decode_dead_letter(event.data) for event in await bodies(outbox, streams[Lane.BULK])]
    assert (letter.reason, letter.body) == ("unstorable", b'{"n": 5}')
    assert not outbox.failed.done()
    await outbox.close()


async def test_act_that_raises_has_no_result_and_other_acts_are_done(folder, caplog):
    outbox, told = Outbox.open(settings(folder)), []

    def fail(*_) -> None:
        raise OverflowError("a number that no database holds")

    outbox.port.act(fail, told.append, size=1000)
    outbox.port.keep("key", b"value", lambda: told.append("kept"))
    assert await put(outbox, make_arrival(1)) is Receipt.STORED
    assert told == ["kept"]
    assert "a number that no database holds" in caplog.text
    assert (outbox.port._waiting_events, outbox.port._waiting_bytes) == (0, 0)
    await outbox.close()
    outbox = Outbox.open(settings(folder))
    assert outbox.port.kept("") == {"key": b"value"}
    (stream,) = await outbox.streams.pending()
    assert [decode_event(row.body).sequence for row in await outbox.streams.read(stream.stream, 0, 9)] == [1]
    await outbox.close()


async def test_a_read_that_raises_fails_for_its_caller_alone(folder):
    outbox = Outbox.open(settings(folder))
    assert await put(outbox, make_arrival(1)) is Receipt.STORED
    (stream,) = await outbox.streams.pending()
    assert isinstance(await settled(outbox.streams.own(stream.stream, 2**64, 0)), OverflowError)
    assert isinstance(await settled(outbox.streams.read("no such stream", 0, 1)), KeyError)
    assert await put(outbox, make_arrival(2)) is Receipt.STORED
    await outbox.close()


async def settled(awaitable) -> object:
    """Return the result or the error."""
    (found,) = await asyncio.gather(awaitable, return_exceptions=True)
    return found
