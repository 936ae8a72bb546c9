"""Peers that the bridge has not let in, and what peers have not finished: bounded over all connections."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from cloud.bridge.bare_listener import dial, listening
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.scheduler import Share
from fogline.message import Message
from fogline_cloud.bridge.door import handshakes
from fogline_lab import amqp_bytes as raw
from fogline_lab.amqp import within
from fogline_lab.amqp_bytes import RawAmqp

MIB = 2**20
PIECE = bytes(8000)
UNFINISHED = [raw.transfer(PIECE, first=number == 0, more=True) for number in range(60)]
"""480 kB of a message whose end never comes."""


@pytest.mark.fault("S7")
async def test_unfinished_messages_of_all_connections_have_one_budget_and_a_good_client_is_served(monkeypatch):
    """40 connections hold back the end of a message. Each stays within the bounds of a connection."""
    monkeypatch.setattr(handshakes, "UNFINISHED_BYTES", 4 * MIB)
    async with listening() as (listener, port):
        peers = [await RawAmqp.linked(port, "event/acme") for _ in range(40)]
        budget = listener.handshakes.budget

        async def hold_back(peer: RawAmqp) -> bytes:
            try:
                for piece in UNFINISHED:
                    await peer.send(piece)
                    assert budget.held_bytes <= 3 * MIB
            except ConnectionError:
                pass
            return await peer.end()

        tasks = [asyncio.create_task(hold_back(peer)) for peer in peers]
        await within(several(tasks, 34), "those for whom there is no room are not ended", 60)
        assert all(b"amqp:resource-limit-exceeded" in task.result() for task in tasks if task.done())
        async with AsyncExitStack() as stack:
            connection = (await dial(stack, port, "good")).connection
            sender = connection.open_sender(connection.open_session(), "good", "event/acme/meter-1", Share(), {})
            for _ in range(5):
                outcome = await within(sender.send(Message(body=bytes(400_000))), "a good client is not served")
                assert outcome == ACCEPTED
        for each in (*tasks, *peers):
            each.cancel() if isinstance(each, asyncio.Task) else each.close()
    assert budget.held_bytes == 0


async def several(tasks, count):
    """Wait until so many have ended."""
    while sum(each.done() for each in tasks) < count:
        await asyncio.wait([each for each in tasks if not each.done()], return_when=asyncio.FIRST_COMPLETED)


@pytest.mark.fault("S7")
async def test_silent_sockets_make_room_for_each_other_and_a_good_client_is_let_in(monkeypatch):
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES", 50)
    async with listening() as (listener, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(120)]
        async with AsyncExitStack() as stack:
            await dial(stack, port, "good")
            assert len(listener.handshakes) <= 50
            assert listener.handshakes.cut_off >= 70
            ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
            await within(several(ends, 70), "the oldest ones are not cut off")
            for each in ends:
                each.cancel()
        for _, writer in silent:
            writer.close()


@pytest.mark.fault("S7")
async def test_sockets_of_one_address_push_out_no_other_s(monkeypatch):
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES", 20)
    async with listening() as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        await within(until(lambda: listener.handshakes.cut_off == 41), "the crowd makes no room for itself")
        writer.write(raw.opening("patient"))
        await within(reader.readuntil(b"\x00S" + bytes([raw.OPEN])), "it is not let in")
        for _, each in [*crowd, (reader, writer)]:
            each.close()


async def until(condition):
    while not condition():  # noqa: ASYNC110 (a counter has no event)
        await asyncio.sleep(0.001)
