"""A connection that has ended leaves no reference cycle: the garbage collector seldom looks at old objects."""

import gc
import weakref

import pytest

from fogline.amqp.driver import open_connections
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.scheduler import Share
from fogline.message import Message
from fogline_lab.amqp import End, pair, within


@pytest.mark.fault("N5")
async def test_ended_connection_leaves_nothing_to_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        client, server = End(), End()
        async with pair(client, server) as connection:
            sender = connection.open_sender(connection.open_session(), "a", "ingest/t/a", Share(), {})
            assert await within(sender.send(Message(body=b"x")), "no outcome") == ACCEPTED
            left = [ref for each in open_connections() for ref in (weakref.ref(each), weakref.ref(each._engine))]
        await within(server.is_closed.wait(), "the server's side does not end")
        del connection, sender, client, server
        assert len(left) == 4
        assert [each() for each in left if each() is not None] == []
    finally:
        gc.enable()


async def test_socket_that_takes_bytes_again_is_closed_only_afterwards():
    """A transport that is closed within `resume_writing` is ended twice by asyncio, which logs a traceback."""
    client = End()
    async with pair(client, End()) as connection:
        transport = connection.protocol.transport
        connection.protocol.pause_writing()
        connection._engine._over = True
        connection.protocol.resume_writing()
        assert not transport.is_closing()
        await within(client.is_closed.wait(), "the connection does not end")
