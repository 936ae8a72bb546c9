"""A gateway's statistics reach the metrics of the bridge that serves it, also across versions and restarts."""

import asyncio
from contextlib import asynccontextmanager

from msgspec.structs import replace

from fogline.amqp.backoff import Backoff
from fogline_cloud.bridge.bridge import Bridge
from fogline_cloud.bridge.metrics import read_bridge
from fogline_edge.downlink.runner import DownlinkCounters
from fogline_edge.operate.statistics import StatisticsReader
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.gateway.connected_gateway import no_commands
from fogline_lab.line.line import Line
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until_not


def fleet(bridge: Bridge) -> dict[tuple[str, ...], float]:
    samples = bridge.fleet.read(bridge.gateways.names, bridge.shards.owned)
    return {(each.name.removeprefix("fogline_gateway_"), *each.labels): each.value for each in samples}


async def until(bridge: Bridge, ready, what: str) -> dict[tuple[str, ...], float]:
    async def missing() -> bool:
        return not ready(fleet(bridge))

    await until_not(missing, what)
    return fleet(bridge)


@asynccontextmanager
async def reporting_gateway(line: Line):
    """A gateway with statistics, as `run_gateway` makes one."""
    outbox = Outbox.open(line.settings())
    statistics = StatisticsReader(line.settings(), DownlinkCounters(succeeded=3), outbox.clock)
    uplink = Uplink(outbox, line.settings().uplink, no_commands, Backoff(base_s=0.05, cap_s=0.5), statistics=statistics.read)
    task = asyncio.create_task(uplink.run())
    try:
        yield outbox
    finally:
        task.cancel()
        await asyncio.wait({task})
        await outbox.close()


async def test_bridge_shows_reports_of_a_gateway_also_after_it_has_gone(line: Line):
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, statistics_s=1.0))
    async with line.bridge() as bridge:
        async with reporting_gateway(line) as outbox:
            first = await until(bridge, lambda found: ("uptime_seconds", "gw-1") in found, "no statistics")
            assert first["connected", "gw-1"] == 1
            assert first["commands_total", "gw-1", "SUCCEEDED"] == 3
            assert 0 < first["outbox_used_bytes", "gw-1"] < first["outbox_max_bytes", "gw-1"]
            assert abs(first["clock_ahead_seconds", "gw-1"]) < 60
            await line.put(outbox, 1, 2, 3)
            await line.drained(outbox)
            await until(bridge, lambda found: found["statistics_total", "gw-1"] >= 3, "statistics came once only")
        gone = await until(bridge, lambda found: not found["connected", "gw-1"], "the gateway is still connected")
        assert gone["uptime_seconds", "gw-1"] > 0
    async with line.bridge() as bridge:  # it has only what Kafka knows
        found = await until(bridge, lambda found: ("connected", "gw-1") in found, "the new bridge does not know the gateway")
    assert abs(found["last_seen_timestamp_seconds", "gw-1"] - gone["last_seen_timestamp_seconds", "gw-1"]) < 60
    assert ("uptime_seconds", "gw-1") not in found


async def test_a_gateway_without_statistics_and_a_bridge_that_takes_none_work(line: Line):
    async with line.bridge() as bridge, line.gateway() as outbox:  # a gateway that sends none
        await line.put(outbox, 1)
        await line.drained(outbox)
        found = fleet(bridge)
        assert found["connected", "gw-1"] == 1
        assert found["statistics_total", "gw-1"] == 0
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, statistics_s=0))
    async with line.bridge() as bridge, reporting_gateway(line) as outbox:  # a bridge that asks for none
        await line.put(outbox, 2)
        await line.drained(outbox)
        assert fleet(bridge)["statistics_total", "gw-1"] == 0
    assert line.landed() == [1, 2]


async def test_the_end_of_a_gateway_s_certificate_is_the_one_that_the_bridge_has_seen(line: Line):
    line, _ = secure(line)
    async with line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, 1)
        await line.drained(outbox)
        samples = read_bridge(bridge.listener, bridge.gateways, bridge._table, bridge.shards, bridge.fleet)
        found = {each.name: each.value for each in samples if "gw-1" in each.labels}
    left_s = found["fogline_gateway_certificate_end_timestamp_seconds"] - found["fogline_gateway_last_seen_timestamp_seconds"]
    assert 23 * 3600 < left_s < 25 * 3600
