"""The listener limits the number of connections, and outlives errors of its handlers. Tested without shards."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED, INTERNAL_ERROR
from fogline.amqp.scheduler import Share
from fogline.message import Message
from fogline_cloud.access.policy import Policy
from fogline_cloud.bridge.audit_trail import AuditTrail
from fogline_cloud.bridge.authentication import Authentication
from fogline_cloud.bridge.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.listener import LinkHandlers, Listener
from fogline_cloud.bridge.peer import LinkHandler
from fogline_cloud.bridge.shard_table import ShardTable
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_lab.amqp import End, within


class NoLinks(LinkHandler):
    """Serves nothing."""

    def attach(self, peer, link, address) -> None:
        """See `LinkHandler`."""

    def received(self, peer, delivery, message, address) -> None:
        """See `LinkHandler`."""


class Stumbles(LinkHandler):
    """Fails at links of device `bad`, and at messages that say so; takes any others."""

    def attach(self, peer, link, address) -> None:
        """See `LinkHandler`."""
        if address.device == "bad":
            raise ZeroDivisionError("nobody thought of this")
        peer.accept_link(link, address, 10)

    def received(self, peer, delivery, message, address) -> None:  # noqa: ARG002 - the handler's interface
        """See `LinkHandler`."""
        if message.body == b"bad":
            raise OverflowError("nobody thought of this")
        peer.settle(delivery, ACCEPTED)


@asynccontextmanager
async def listening(handler: LinkHandler | None = None) -> AsyncIterator[int]:
    """The port of a bridge's listener that takes two connections."""
    settings = CloudSettings(tenant="acme", bridge=BridgeSettings(max_connections=2))
    handlers = LinkHandlers(*[handler or NoLinks()] * 6)
    audit = AuditTrail(ShardTable(1))
    listener = Listener(
        settings.bridge, Authentication(settings), Policy("acme", 1), ConnectedGateways(), handlers, audit=audit
    )
    _, port = await listener.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await listener.close()


async def dial(stack: AsyncExitStack, port: int, name: str) -> End:
    """A client's connection, open."""
    client = End()
    connection = await connect("127.0.0.1", port, Engine(name, properties={"tenant": "acme"}), client)
    stack.callback(connection.abort)
    await within(client.is_open.wait(), f"{name} is not answered")
    return client


async def test_a_connection_beyond_the_most_is_closed_with_an_error_until_another_one_ends():
    async with listening() as port, AsyncExitStack() as stack:
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
    async with listening(Stumbles()) as port, AsyncExitStack() as stack:
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
