"""Two bridges that share the shards: a gateway at the wrong one is sent on, and one bridge stands in for the other."""

import asyncio
from contextlib import AsyncExitStack

from e2e.pair import Pair
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings


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
