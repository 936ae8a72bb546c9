"""The listener limits the number of connections. Tested without shards."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
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


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """The port of a bridge's listener that takes two connections."""
    settings = CloudSettings(tenant="acme", bridge=BridgeSettings(max_connections=2))
    handlers = LinkHandlers(*[NoLinks()] * 6)
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
