"""Two bridges that share the shards: a gateway at the wrong one is sent on, and one bridge stands in for the other."""

import asyncio
from contextlib import AsyncExitStack

from fogline.address import shard_of
from fogline.commands.command import CommandState
from fogline_cloud.commands import routes
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.kafka_broker import free_port
from fogline_lab.line.bridge_pair import BridgePair, two_bridges
from fogline_lab.waiting import until_not


async def test_b8_both_bridges_send_to_the_gateway_that_a_device_moved_to(line, monkeypatch):
    monkeypatch.setattr(routes, "STAY_S", 0.0)
    moved_to = next(name for name in ("gw-2", "gw-3", "gw-4") if shard_of(name, 2) != shard_of("gw-1", 2))
    async with two_bridges(line) as pair, pair.gateway("gw-1") as (_, *names), pair.gateway(moved_to) as (there, *_):
        device = CommandDevice(there)
        there.reachable("lamp-1", device)

        async def differ() -> bool:
            return {each._routes.gateway_of("lamp-1") for each in pair.bridges.values()} != {moved_to}

        await until_not(differ, "the bridges do not agree on the gateway of the device")
        for name in names:
            async with Operator("127.0.0.1", pair.port(name), line.tenant) as operator:
                verdict = await within(operator.request(Ask("lamp-1", "switch")), f"no answer by {name}")
                assert verdict.state is CommandState.SUCCEEDED


async def test_a_gateway_is_sent_on_to_the_owner_and_the_other_stands_in_for_it(line):
    pair = BridgePair(line)
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


async def test_a_gateway_on_websocket_is_sent_on_to_the_owner_s_host_at_its_own_port_and_path(line):
    """A bridge names its AMQP port, which is closed on the way of a gateway that needs WebSocket."""
    port = free_port()
    pair = BridgePair(line, websocket_port=port)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pair.close)
        await pair.start()
        owner, other = pair.owner("gw-1")
        line.bridges = [f"ws://{pair.addresses[other].partition(':')[0]}:{port}/amqp"]
        async with line.gateway() as outbox:
            await line.put(outbox, *range(100))
            await line.drained(outbox)
            assert pair.bridges[owner].gateways.names == ["gw-1"]
            ((host, its_port),) = {
                peer.connection.protocol.transport.get_extra_info("sockname") for peer in pair.bridges[owner].listener.peers
            }
            assert (host, its_port) == (pair.addresses[owner].partition(":")[0], port)
    assert await asyncio.to_thread(line.landed) == list(range(100))
