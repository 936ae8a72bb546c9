"""Both sides of a connection over real sockets."""

import asyncio
import os
import uuid

import pytest

from fogline.amqp import sending
from fogline.amqp.driver import HANDSHAKE_S, connect
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MESSAGE_SIZE_EXCEEDED, MODIFIED, RELEASED, Condition, rejected
from fogline.amqp.scheduler import Share
from fogline.errors import Unreachable
from fogline.message import Message
from fogline_lab.amqp import End, dialled, pair, served, within


def open_sender(connection, name="telemetry", share=None):
    return connection.open_sender(connection.open_session(), name, f"ingest/t/{name}", share or Share(), {"lane": name})


async def test_a_message_arrives_as_it_was_sent():
    client, server = End(), End()
    message = Message(
        body=os.urandom(70_000),
        to="somewhere",
        subject="s",
        reply_to="r",
        message_id=b"\x00\x01",
        correlation_id=uuid.uuid4(),
        content_type="application/x",
        content_encoding="zstd",
        created_ms=1_790_000_000_123,
        durable=True,
        ttl_ms=1500,
        properties={"first": 1, "chain": "ab", "raw": b"\x00", "on": True},
    )
    async with pair(client, server) as connection:
        outcome = await within(open_sender(connection).send(message), "no outcome")
    assert outcome == ACCEPTED
    assert server.messages == [message]
    assert server.links[0].properties == {"lane": "telemetry"}
    assert server.peers[0].container == "client"


@pytest.mark.parametrize("kind", ["text", 2**63 + 1, uuid.UUID(int=7), b"\x00\xff"], ids=["string", "ulong", "uuid", "binary"])
async def test_a_correlation_id_of_any_type_comes_back_as_it_was(kind):
    client, server = End(), End()
    async with pair(client, server) as connection:
        await within(open_sender(connection).send(Message(correlation_id=kind)), "no outcome")
    assert server.messages[0].correlation_id == kind


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, MODIFIED, rejected(DECODE_ERROR, "why")], ids=str)
async def test_every_outcome_comes_back(outcome):
    client, server = End(), End(answer=lambda _: outcome)
    async with pair(client, server) as connection:
        assert await within(open_sender(connection).send(Message(body=b"x")), "no outcome") == outcome


async def test_nothing_goes_out_without_credit():
    client, server = End(), End(credit=0)
    async with pair(client, server) as connection:
        waiting = open_sender(connection).send(Message(subject="first"))
        second = open_sender(connection, "alarm").send(Message(subject="second"))
        await within(server.link_is_there(2), "the links did not come")
        server.connection.grant(server.links[1], 1)
        await within(second, "the other link is held up")
        assert not waiting.done()
        server.connection.grant(server.links[0], 1)
        await within(waiting, "credit did not help")
    assert [message.subject for message in server.messages] == ["second", "first"]


async def test_drain_delivers_available_messages_and_returns_the_remaining_credit(monkeypatch):
    monkeypatch.setattr(sending, "DRAIN_S", 0.01)
    client, server = End(), End(credit=0)
    async with pair(client, server) as connection:
        sender = open_sender(connection)
        await within(server.link_is_there(1), "the link did not come")
        receiver = server.links[0].native
        receiver.drain_mode = True
        outcome = sender.send(Message(subject="first"))
        server.connection.grant(server.links[0], 3)
        await within(outcome, "no outcome")

        async def drained():
            while receiver.credit:
                server.connection.protocol.turn()
                await asyncio.sleep(0)

        await within(drained(), "the credit does not come back")
        assert sender.credit == 0
        receiver.drain_mode = False
        server.connection.grant(server.links[0], 1)
        await within(sender.send(Message(subject="second")), "the link is of no use after a drain")
    assert [message.subject for message in server.messages] == ["first", "second"]


async def test_delivery_unsettled_at_the_end_of_its_connection_has_an_unknown_outcome():
    client, server = End(), End(answer=lambda _: None)
    async with served(server) as port, dialled(client, port) as connection:
        sender = open_sender(connection)
        waiting = [sender.send(Message(body=b"x")) for _ in range(3)]
        await within(server.is_open.wait(), "not open")
        server.connection.abort()
        for future in waiting:
            with pytest.raises(Unreachable):
                await within(future, "a future was forgotten")
        assert connection.unsettled == 0
        with pytest.raises(Unreachable):
            await sender.send(Message())


async def test_a_message_over_the_limit_closes_its_link_only():
    client, server = End(), End()
    async with pair(client, server, max_message_bytes=50_000) as connection:
        big, small = open_sender(connection, "bulk"), open_sender(connection, "alarm")
        with pytest.raises(Unreachable):
            await within(big.send(Message(body=b"x" * 200_000)), "the link was not closed")
        assert client.link_conditions[0].name == MESSAGE_SIZE_EXCEEDED
        assert await within(small.send(Message(body=b"x")), "the other link suffered") == ACCEPTED
        again = open_sender(connection, "bulk")
        assert await within(again.send(Message(body=b"x")), "the link cannot be opened again") == ACCEPTED


async def test_a_close_says_why():
    client, server = End(), End()
    async with pair(client, server):
        server.connection.close(Condition("amqp:connection:forced", "stopping"))
        await within(client.is_closed.wait(), "the close did not arrive")
    assert client.why == "amqp:connection:forced: stopping"


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"AMQP\x03\x01\x00\x00" + b"\xff" * 512])
async def test_garbage_closes_only_its_own_connection(garbage):
    client, server = End(), End()
    async with served(server) as port, dialled(client, port) as connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        writer.write_eof()
        await within(reader.read(), "garbage was not cut off")
        writer.close()
        assert await within(open_sender(connection).send(Message(body=b"x")), "a good client suffers") == ACCEPTED


async def test_a_silent_socket_is_cut_off_at_the_handshake_deadline(monkeypatch):
    monkeypatch.setattr("fogline.amqp.driver.HANDSHAKE_S", HANDSHAKE_S / 100)
    async with served(End()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await within(reader.read(), "a silent socket stays")
        writer.close()


async def test_a_half_open_peer_is_noticed():
    """A peer that falls silent without closing is gone after the idle time-out."""
    client, server = End(), End()
    async with served(server, idle_timeout_s=0.5) as port, dialled(client, port) as connection:
        connection.protocol.transport.pause_reading()
        connection._engine.tick = lambda _: 0.0
        await within(server.is_closed.wait(), "a dead peer is believed alive")


async def test_a_connection_that_ended_with_its_last_bytes_still_buffered_can_be_aborted():
    """Asyncio's transport, closed with a full buffer, raises in `abort` once the buffer is written and the socket gone."""
    reading = asyncio.Event()

    async def read_later(reader, writer):
        await reading.wait()
        while await reader.read(1 << 20):
            pass
        writer.close()

    server = await asyncio.start_server(read_later, "127.0.0.1", 0)
    client = End()
    connection = await connect("127.0.0.1", server.sockets[0].getsockname()[1], Engine("client"), client)
    connection.protocol.transport.write(bytes(16 << 20))
    connection.protocol.transport.close()
    assert connection.protocol.transport.get_write_buffer_size() > 0
    reading.set()
    await within(client.is_closed.wait(), "the connection does not end")
    connection.abort()
    server.close()


async def test_closed_connection_holds_no_object_of_proton():
    """Links and deliveries are dropped by other threads, which must not free what proton counts without a lock."""
    deliveries = []

    class Keeping(End):
        def received(self, connection, delivery, data):  # noqa: ARG002 - the interface
            deliveries.append(delivery)
            if len(deliveries) == 1:
                connection.settle(delivery, ACCEPTED)

    client, server = End(), Keeping()
    async with pair(client, server) as connection:
        sender = open_sender(connection)
        await within(sender.send(Message(body=b"x")), "no outcome")
        assert deliveries[0].native is None
        waiting = sender.send(Message(body=b"y"))
        await within(until(lambda: len(deliveries) == 2), "no second message")
        assert deliveries[1].native is not None
        connection.abort()
        await within(server.is_closed.wait(), "the server does not notice")
        assert [each.native for each in (*deliveries, *server.links, sender.link)] == [None] * 4
        server.connection.settle(deliveries[1], ACCEPTED, credit=1)  # too late, and no harm
        with pytest.raises(Unreachable):
            await waiting


async def until(condition):
    while not condition():  # noqa: ASYNC110 - of the handler's own list
        await asyncio.sleep(0.001)
