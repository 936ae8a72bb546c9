"""What waits for another bridge that says nothing counts against the budget of its connection. Tested without shards."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from fogline.address import CommandAddress, DeviceAddress
from fogline.amqp.outcome import RELEASED
from fogline.commands.signature import Signer
from fogline.message import Message
from fogline_cloud.access.policy import Policy
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.commands.command_sender import CommandSender
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.devices import DeviceHandler
from fogline_cloud.bridge.commands.operators import OperatorHandler
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.forwarding import Forwarder
from fogline_cloud.bridge.peers.peer import Peer
from fogline_cloud.bridge.peers.queue_budget import QueueBudget
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import BridgeSettings, CommandPolicySettings
from fogline_lab.amqp import within

OPERATOR = Principal(PrincipalKind.CLIENT, "acme", "op-1", "asserted")
BODY = b"x" * 10_000
LIMIT_BYTES = 100_000


class Arrived:
    """A delivery that is not settled yet."""

    link = None


class Socket:
    """An operator's connection, which records what the bridge does with it."""

    def __init__(self):
        self.reading = True
        self.settled = []
        self.is_settled = asyncio.Event()

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def grant(self, link, credit):
        pass

    def settle(self, _delivery, outcome, credit=0):  # noqa: ARG002 - the interface
        self.settled.append(outcome)
        self.is_settled.set()


@asynccontextmanager
async def silent_bridge():
    """The address of a bridge that takes connections and says nothing, and a function that ends them."""
    writers, came = [], asyncio.Event()

    async def take(_, writer):
        writers.append(writer)
        came.set()

    async def end():
        await within(came.wait(), "nobody connects")
        for each in writers:
            each.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", end


def handlers(forwarder, shards):
    policy = Policy("acme", 1)
    table = CommandTable(shards, CommandSender(ConnectedGateways(), Signer()), 1.0)
    operators = OperatorHandler(
        shards,
        Routes(),
        table,
        settings=CommandPolicySettings(),
        ids=CommandIds(b"k" * 32),
        policy=policy,
        forwarder=forwarder,
    )
    return operators, DeviceHandler(SimpleNamespace(), SimpleNamespace(), policy, shards, forwarder)


KINDS = {
    "commands": (0, CommandAddress("acme", "lamp-1"), {"subject": "switch", "body": BODY}),
    "requests to cancel": (0, CommandAddress("acme", ""), {"properties": {"cancel": "5f0c"}, "body": BODY}),
    "changes of devices": (1, DeviceAddress("acme", "lamp-1"), {"subject": "forget", "body": BODY}),
}


@pytest.mark.parametrize(("handler", "address", "message"), KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("is_gone", [False, True], ids=["connected", "gone"])
async def test_bytes_waiting_for_a_silent_bridge_count_and_pause_reading_until_settled(handler, address, message, is_gone):
    async with silent_bridge() as (other, end):

        async def owners():
            return {0: other}

        shards, socket, budget = ShardTable(1), Socket(), QueueBudget(LIMIT_BYTES, 2 * LIMIT_BYTES)
        forwarder = Forwarder(BridgeSettings(), shards, owners)
        peer = Peer(OPERATOR, socket, budget)
        serve = handlers(forwarder, shards)[handler]
        taken = 0
        while socket.reading and taken < 50:
            serve.received(peer, Arrived(), Message(message_id=f"m-{taken}", **message), address)
            taken += 1
        assert taken == 10
        assert LIMIT_BYTES <= budget.held_bytes <= LIMIT_BYTES + 11_024 * taken
        peer.closed = is_gone
        if not is_gone:
            await end()
        while len(socket.settled) < taken:
            socket.is_settled.clear()
            await within(socket.is_settled.wait(), "what waits is not settled")
        assert (set(socket.settled), budget.held_bytes, socket.reading) == ({RELEASED}, 0, True)
        forwarder.close()
