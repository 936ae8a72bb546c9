"""Two bridges that share the shards: a gateway at the wrong one is sent on, and one bridge stands in for the other."""

import asyncio
from contextlib import AsyncExitStack

from e2e.parts import until_not
from fogline.address import shard_of
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings

NAMES = ("bridge-1", "bridge-2")


class Pair:
    """Both bridges, each with one of the two shards."""

    def __init__(self, line):
        self.line = line
        self.bridges: dict[str, Bridge] = {}
        self.addresses: dict[str, str] = {}

    async def start(self):
        for name in NAMES:
            settings = CloudSettings(
                tenant=self.line.tenant,
                kafka=self.line.cloud.kafka,
                shards=2,
                bridge=BridgeSettings(name=name, listen="127.0.0.1:0", checkpoint_s=0.2),
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


async def test_a_gateway_is_sent_on_to_the_owner_and_the_other_stands_in_for_it(line):
    pair = Pair(line)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pair.close)
        await pair.start()
        owner, other = pair.owner("gw-1")
        uplink = UplinkSettings(bridge=[pair.addresses[other], pair.addresses[owner]], batch_events=100)
        outbox = Outbox.open(EdgeSettings(tenant=line.tenant, gateway="gw-1", data=str(line.folder / "gw-1"), uplink=uplink))
        stack.push_async_callback(outbox.close)
        async with line.uplink(outbox, settings=uplink):
            await line.put(outbox, *range(100))
            await line.drained(outbox)
            assert pair.bridges[owner].gateways.names == ["gw-1"]
            assert pair.bridges[other].gateways.names == []
            await pair.stop(owner)
            await line.put(outbox, *range(100, 200))
            await line.drained(outbox)
            assert pair.bridges[other].gateways.names == ["gw-1"]
    assert await asyncio.to_thread(line.landed) == list(range(200))
