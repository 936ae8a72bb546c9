"""Two bridges of one tenant, each with one of its two shards."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from fogline.address import shard_of
from fogline_cloud.bridge.bridge import Bridge
from fogline_edge.downlink.downlink import Downlink
from fogline_lab.line.line import Line, gateway
from fogline_lab.waiting import until

NAMES = ("bridge-1", "bridge-2")


class BridgePair:
    """Both bridges, each with one of the two shards. `websocket_port`: they have hosts of their own, and this port on both."""

    def __init__(self, line: Line, websocket_port: int | None = None) -> None:
        self.line = line
        self._websocket_port = websocket_port
        self.bridges: dict[str, Bridge] = {}
        self.addresses: dict[str, str] = {}

    async def start(self) -> None:
        """Start both, and wait until each has one shard."""
        for number, name in enumerate(NAMES, 1):
            own = replace(self.line.cloud.bridge, name=name, listen="127.0.0.1:0", checkpoint_s=0.2)
            if (port := self._websocket_port) is not None:
                own = replace(own, listen=f"127.0.0.{number}:0", websocket=f"127.0.0.{number}:{port}")
            self.bridges[name] = Bridge(replace(self.line.cloud, bridge=own))
            self.addresses[name] = "{}:{}".format(*await self.bridges[name].start())

        def shared() -> bool:
            return all([each.ready for each in bridge.shards] == [True] for bridge in self.bridges.values())

        await until(shared, "the bridges do not share the shards")

    async def stop(self, name: str) -> None:
        """Close a bridge."""
        if (bridge := self.bridges.pop(name, None)) is not None:
            await bridge.close()

    async def close(self) -> None:
        """Close both."""
        for name in NAMES:
            await self.stop(name)

    def owner(self, gateway: str) -> tuple[str, str]:
        """Return the bridge that owns a gateway's shard, and the other one."""
        number = shard_of(gateway, 2)
        owner = next(name for name, bridge in self.bridges.items() if bridge.shards.owned.get(number) is not None)
        return owner, next(name for name in NAMES if name != owner)

    def port(self, name: str) -> int:
        """Return the port of a bridge."""
        return int(self.addresses[name].rpartition(":")[2])

    @asynccontextmanager
    async def gateway(self, name: str = "gw-1") -> AsyncIterator[tuple[Downlink, str, str]]:
        """Connect a gateway that has sent one event. Yields its downlink, its shard's owner and the other bridge."""
        owner, other = self.owner(name)
        self.line.bridges = [self.addresses[owner], self.addresses[other]]
        async with gateway(self.line, name) as (outbox, downlink):
            await self.line.put(outbox, 1)
            await self.line.drained(outbox)
            yield downlink, owner, other


@asynccontextmanager
async def two_bridges(line: Line) -> AsyncIterator[BridgePair]:
    """Run both bridges, for the length of a block."""
    pair = BridgePair(line)
    try:
        await pair.start()
        yield pair
    finally:
        await pair.close()
