"""The parts of a bridge that handle commands, without connections and without Kafka."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from fogline.commands.signature import Signer
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.access.policy import Policy
from fogline_cloud.bridge.commands.command_sender import CommandSender
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.operators import OperatorHandler
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.forwarding import Forwarder
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.command_life import CommandLife
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import BridgeSettings, CommandPolicySettings
from fogline_cloud.shard.shard import Shard


class TakesWork(Protocol):
    """The part of `fogline_cloud.shard.shard.Shard` that commands use."""

    @property
    def ready(self) -> bool:
        """True if the shard accepts work."""

    def submit(self, work: Any) -> None:
        """Take a piece of work."""


class OneShard:
    """A tenant's only shard. It keeps its work in `changes`. `asked` is set when `ready` is read."""

    def __init__(self, *, ready: bool = False) -> None:
        self.asked = asyncio.Event()
        self.changes: asyncio.Queue[Any] = asyncio.Queue()
        self._ready = ready

    @property
    def ready(self) -> bool:
        """True if the shard accepts work. A test sets it."""
        self.asked.set()
        return self._ready

    @ready.setter
    def ready(self, ready: bool) -> None:
        self._ready = ready

    def submit(self, work: Any) -> None:
        """Keep a piece of work."""
        self.changes.put_nowait(work)


class CommandSide:
    """Table, sender and operators' handler of a bridge with one shard. `now_ms`: its wall clock, in ms since 1970."""

    def __init__(self, shard: TakesWork, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        shards = ShardTable(1)
        shards.owned[0] = cast("Shard", shard)
        self.gateways = ConnectedGateways()
        self.routes = Routes()
        sender = CommandSender(self.gateways, Signer())
        self.table = CommandTable(shards, sender, CommandPolicySettings().grace_s, now_ms)
        settings, ids = CommandPolicySettings(), CommandIds(b"k" * 32)
        self.operators = OperatorHandler(
            shards,
            self.routes,
            self.table,
            settings=settings,
            ids=ids,
            policy=Policy("acme", 1),
            forwarder=Forwarder(BridgeSettings(), shards, no_other_bridges),
        )
        self.submit = self.operators.submit
        self.close = self.table.close

    def learn(self, record: CommandRecord) -> None:
        """Have the table take over a record."""
        self.table.on(record, CommandLife.learned, record)

    def connect(self, peer: GatewayPeer) -> None:
        """Connect a gateway, in place of its former connection, and send it what it has not accepted."""
        self.gateways._by_name[peer.principal.name] = peer  # noqa: SLF001 - `add` closes the former one
        self.table.resume(peer.principal.name)


async def no_other_bridges() -> dict[int, str]:
    """Return no owner of any shard."""
    return {}


def ready_command_side() -> tuple[CommandSide, OneShard]:
    """Return a command side whose shard accepts work, and that shard."""
    shard = OneShard(ready=True)
    return CommandSide(shard), shard
