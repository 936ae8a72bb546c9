"""The listener limits the number of connections, and outlives errors of its handlers. Tested without shards."""

from contextlib import AsyncExitStack

import pytest

from cloud.bridge.bare_listener import TakesAll, dial, listening
from fogline.amqp.outcome import ACCEPTED, INTERNAL_ERROR
from fogline.amqp.scheduler import Share
from fogline.message import Message
from fogline_lab.amqp import within


class Stumbles(TakesAll):
    """Fails at links of device `bad`, and at messages that say so; takes any others."""

    def attach(self, peer, link, address) -> None:
        """See `LinkHandler`."""
        if address.device == "bad":
            raise ZeroDivisionError("nobody thought of this")
        super().attach(peer, link, address)

    def received(self, peer, delivery, message, address) -> None:
        """See `LinkHandler`."""
        if message.body == b"bad":
            raise OverflowError("nobody thought of this")
        super().received(peer, delivery, message, address)


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


@pytest.mark.fault("X11")
async def test_a_message_and_a_link_at_which_a_handler_fails_end_with_an_error_and_the_connection_goes_on():
    async with listening(Stumbles()) as (_, port), AsyncExitStack() as stack:
        client = await dial(stack, port, "one")
        session = client.connection.open_session()
        sender = client.connection.open_sender(session, "good", "telemetry/acme/lamp-1", Share(), {})
        refused = client.connection.open_sender(session, "bad", "telemetry/acme/bad", Share(), {})
        outcomes = [await within(sender.send(Message(body=body)), "not settled") for body in (b"1", b"bad", b"2")]
        assert (outcomes[0], outcomes[2]) == (ACCEPTED, ACCEPTED)
        assert outcomes[1].condition == INTERNAL_ERROR
        assert "OverflowError" in outcomes[1].description
        assert [each.name for each in client.link_conditions] == [INTERNAL_ERROR]
        assert refused.closed
        assert not client.is_closed.is_set()
