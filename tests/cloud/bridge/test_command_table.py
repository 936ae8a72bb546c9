"""The table of commands: the verdict on an expired command is written as soon as there is a shard, however late."""

import asyncio
import time

import pytest

from cloud.commands.test_registry import record
from fogline.command import CommandState
from fogline.signature import Signer
from fogline_cloud.access.policy import Policy
from fogline_cloud.bridge import command_table
from fogline_cloud.bridge.command_sender import CommandSender
from fogline_cloud.bridge.command_table import CommandTable, wall_clock_ms
from fogline_cloud.bridge.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.forwarding import Forwarder
from fogline_cloud.bridge.operators import OperatorHandler
from fogline_cloud.bridge.shard_table import ShardTable
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.replacement import keep_verdict
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import BridgeSettings, CommandPolicySettings
from fogline_lab.amqp import within


class OneShard:
    """A tenant's only shard. `asked` is set when somebody asks whether it is ready."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.changes: asyncio.Queue = asyncio.Queue()
        self._ready = False

    @property
    def ready(self) -> bool:
        self.asked.set()
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        self._ready = ready

    def submit(self, work):
        self.changes.put_nowait(work)


async def no_others():
    """The other bridges that own shards."""
    return {}


class CommandSide:
    """The parts of a bridge that handle commands, without connections."""

    def __init__(self, shard, now_ms=wall_clock_ms):
        shards = ShardTable(1)
        shards.owned[0] = shard
        self.gateways = ConnectedGateways()
        self.routes = Routes()
        self.table = CommandTable(shards, CommandPolicySettings().grace_s, now_ms)
        self.sender = CommandSender(self.table, self.gateways, Signer())
        settings, ids = CommandPolicySettings(), CommandIds(b"k" * 32)
        self.operators = OperatorHandler(
            shards,
            self.gateways,
            self.routes,
            self.table,
            self.sender,
            settings=settings,
            ids=ids,
            policy=Policy("acme", 1),
            forwarder=Forwarder(BridgeSettings(), shards, no_others),
        )
        self.submit = self.operators.submit
        self.close = self.table.close

    def connect(self, peer):
        """Have a gateway connect, in place of its former connection."""
        self.gateways._by_name[peer.principal.name] = peer
        self.sender.resume(peer)


@pytest.mark.fault("S3")
async def test_a_record_from_another_gateways_shard_changes_no_command():
    """B2: the shard of a forging gateway does not know the command, but the bridge does."""
    commands = CommandSide(OneShard())
    asked = record(expires_ms=int(time.time() * 1000) + 60_000)
    commands.table.take_over(asked)
    foreign = record(gateway="gw-2", state=CommandState.SUCCEEDED, status=200, digest="", operator="", reply_to="")
    commands.table.take_over(foreign)
    assert commands.table.registry.get("C1") == asked
    commands.close()


async def test_a_command_that_expires_while_kafka_is_away_is_ended_when_it_is_back(monkeypatch):
    monkeypatch.setattr(command_table, "RETRY_S", 0.01)
    shard = OneShard()
    commands = CommandSide(shard)
    commands.table.take_over(record(expires_ms=int(time.time() * 1000)))
    await within(shard.asked.wait(), "the verdict is never tried to be written")
    assert shard.changes.empty()
    shard.ready = True
    change = await within(shard.changes.get(), "the verdict is never written")
    assert change.record.state is CommandState.EXPIRED
    commands.table.take_over(change.record)
    assert not commands.table.open
    commands.close()


async def test_a_reply_to_an_attempt_of_a_former_bridge_waits_until_the_gateway_has_confirmed_the_copy():
    """The operator's copy came to a bridge that had not read the reply: its verdict goes with the copy's request."""
    commands = CommandSide(OneShard())
    asked = record(expires_ms=int(time.time() * 1000) + 60_000)
    commands.table.take_over(asked)
    reply = record(state=CommandState.SUCCEEDED, status=200, digest="", operator="", reply_to="")
    commands.table.take_over(reply)
    assert commands.table.registry.get("C1") == asked
    for unconfirmed in (asked, record(state=CommandState.REJECTED), record(digest="", state=CommandState.DISPATCHED)):
        assert keep_verdict(reply, unconfirmed) == unconfirmed
    confirmed = keep_verdict(reply, record(state=CommandState.DISPATCHED))
    assert (confirmed.state, confirmed.status, confirmed.reply_to, confirmed.owes_reply) == (
        CommandState.SUCCEEDED,
        200,
        "me",
        True,
    )
    commands.table.take_over(confirmed)
    assert not commands.table.open
    commands.close()
