"""A bridge's listener without shards, on plain text."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED
from fogline_cloud.access.policy import Policy
from fogline_cloud.bridge.door.authentication import Authentication
from fogline_cloud.bridge.door.listener import LinkHandlers, Listener
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import LinkHandler
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_lab.amqp import End, within

CREDIT = 10


class TakesAll(LinkHandler):
    """Accepts every link and every message."""

    def attach(self, peer, link, address) -> None:
        """See `LinkHandler`."""
        peer.accept_link(link, address, CREDIT)

    def received(self, peer, delivery, message, address) -> None:  # noqa: ARG002 - the interface
        """See `LinkHandler`."""
        peer.settle(delivery, ACCEPTED)


@asynccontextmanager
async def listening(handler: LinkHandler | None = None, **bridge) -> AsyncIterator[tuple[Listener, int]]:
    """The listener, whose links all have one handler, and its port."""
    settings = CloudSettings(tenant="acme", bridge=BridgeSettings(**bridge))
    handlers, audit = LinkHandlers(*[handler or TakesAll()] * 8), AuditTrail(ShardTable(1))
    policy, authentication = Policy("acme", 1), Authentication(settings)
    listener = Listener(settings.bridge, authentication, policy, ConnectedGateways(), handlers, audit=audit)
    _, port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, port
    finally:
        await listener.close()


async def dial(stack: AsyncExitStack, port: int, name: str) -> End:
    """A client's connection, open."""
    client = End()
    connection = await connect("127.0.0.1", port, Engine(name, properties={"tenant": "acme"}), client)
    stack.callback(connection.abort)
    await within(client.is_open.wait(), f"{name} is not answered")
    return client
