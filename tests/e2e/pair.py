"""Two bridges of one tenant, each with one of its two shards."""

from contextlib import asynccontextmanager

from msgspec.structs import replace

from e2e.parts import gateway, until_not
from fogline.address import shard_of
from fogline_cloud.bridge.bridge import Bridge

NAMES = ("bridge-1", "bridge-2")


class Pair:
    """Both bridges, each with one of the two shards."""

    def __init__(self, line):
        self.line = line
        self.bridges: dict[str, Bridge] = {}
        self.addresses: dict[str, str] = {}

    async def start(self):
        for name in NAMES:
            settings = replace(
                self.line.cloud, bridge=replace(self.line.cloud.bridge, name=name, listen="127.0.0.1:0", checkpoint_s=0.2)
            )
            self.bridges[name] = Bridge(settings)
            self.addresses[name] = "{}:{}".format(*await self.bridges[name].start())

        async def unshared() -> bool:
            return any([each.ready for each in bridge.shards] != [True] for bridge in self.bridges.values())

        await until_not(unshared, "each bridge has one shard")

    async def stop(self, name):
        if (bridge := self.bridges.pop(name, None)) is not None:
            await bridge.close()

    async def close(self):
        for name in NAMES:
            await self.stop(name)

    def owner(self, gateway):
        """Return the bridge that owns a gateway's shard, and the other one."""
        number = shard_of(gateway, 2)
        owner = next(name for name, bridge in self.bridges.items() if bridge.shards.owned.get(number) is not None)
        return owner, next(name for name in NAMES if name != owner)

    def port(self, name):
        """Return the port of a bridge."""
        return int(self.addresses[name].rpartition(":")[2])

    @asynccontextmanager
    async def gateway(self, name="gw-1"):
        """Connect a gateway, with one event of its device. Yields its downlink, the owner of its shard and the other bridge."""
        owner, other = self.owner(name)
        self.line.bridges = [self.addresses[owner], self.addresses[other]]
        async with gateway(self.line, name) as (outbox, downlink):
            await self.line.put(outbox, 1)
            await self.line.drained(outbox)
            yield downlink, owner, other


@asynccontextmanager
async def two_bridges(line):
    """Both bridges, for the length of a block."""
    pair = Pair(line)
    try:
        await pair.start()
        yield pair
    finally:
        await pair.close()
