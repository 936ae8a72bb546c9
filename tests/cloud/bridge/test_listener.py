"""The listener limits the number of connections. Tested without shards."""

from contextlib import AsyncExitStack

from cloud.bridge.bare_listener import dial, listening
from fogline_lab.amqp import within


async def test_a_connection_beyond_the_most_is_closed_with_an_error_until_another_one_ends():
    async with listening(max_connections=2) as (_, port), AsyncExitStack() as stack:
        first, second, third = [await dial(stack, port, name) for name in ("one", "two", "three")]
        await within(third.is_closed.wait(), "the third connection is not closed")
        assert "amqp:resource-limit-exceeded: at most 2 connections" in third.why
        first.connection.close()
        await within(first.is_closed.wait(), "the first connection does not close")
        fourth = await dial(stack, port, "four")
        assert not fourth.is_closed.is_set()
        assert not second.is_closed.is_set()
