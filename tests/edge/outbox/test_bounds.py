"""Everything that waits for the writer has one bound in bytes; at the bound the sender is told to slow down."""

import asyncio

import pytest

from edge.outbox.full_outbox import KB, full, heal
from fogline.commands.command import Reply
from fogline.commands.signature import TrustedKeys
from fogline.errors import SlowDown
from fogline.events.event import Lane, Receipt
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox import port as module
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.gateway.outbox_use import put, settings


@pytest.mark.fault("C10")
async def test_answers_that_wait_for_room_are_bounded_in_bytes(folder, monkeypatch):
    """G6: 1,500 answers to no command took 184 MB while the outbox was full."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 1000 * KB)
    outbox = await full(folder)
    downlink, told = Downlink(outbox, TrustedKeys()), []
    answered = 0
    with pytest.raises(SlowDown):  # noqa: PT012 (how many are taken before is the bound's affair)
        for n in range(100):
            downlink.answer("lamp-1", f"unknown-{n}", Reply(200, bytes(50 * KB)), told.append)
            answered += 1
            await outbox.streams.pending()
    assert 5 < answered <= 1000 // 50
    assert outbox.port.crowded
    while len(told) < answered:
        await heal(outbox)
    assert told == [Receipt.DEAD] * answered
    assert not outbox.port.crowded
    await outbox.close()


@pytest.mark.parametrize(
    "fill",
    [
        lambda outbox, n: outbox.port.keep(f"key-{n}", bytes(50 * KB), lambda: None),
        lambda outbox, n: outbox.port.forget(b"slot" + bytes(50 * KB), lambda: None, n),
        lambda outbox, n: outbox.port.put(make_arrival(n, data=bytes(50 * KB), lane=Lane.REPLY), lambda _: None),
        lambda outbox, n: outbox.port.put_when_room(make_arrival(n, data=bytes(50 * KB)), lambda _: None),
        lambda outbox, _: outbox.port.act(lambda *_: None, lambda _: None, size=50 * KB),
    ],
    ids=["keep", "forget", "replies", "what cannot be refused", "act"],
)
async def test_everything_that_waits_counts_against_one_bound(folder, monkeypatch, fill):
    """G6."""
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 1000 * KB)
    outbox = Outbox.open(settings(folder))
    for n in range(20):
        assert not outbox.port.crowded
        fill(outbox, n)
    assert outbox.port.crowded
    with pytest.raises(SlowDown):
        outbox.port.put(make_arrival(), lambda _: None)
    room = asyncio.Event()
    outbox.port.when_room(room.set)
    await within(room.wait(), "no room came")
    assert not outbox.port.crowded
    assert await put(outbox, make_arrival()) is Receipt.STORED
    assert (outbox.port._waiting_events, outbox.port._waiting_bytes, outbox.port._late_bytes) == (0, 0, 0)
    await outbox.close()


async def test_many_small_things_are_bounded_by_their_number(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING_EVENTS", 100)
    outbox = Outbox.open(settings(folder))
    for n in range(100):
        assert not outbox.port.crowded
        outbox.port.keep(f"key-{n}", b"", lambda: None)
    assert outbox.port.crowded
    await outbox.close()
