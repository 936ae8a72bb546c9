"""A bridge dies, freezes, comes and goes: its shards go to another one, and everything lands once."""

import asyncio
import signal
from contextlib import asynccontextmanager

import pytest

from fogline.amqp.backoff import Backoff
from fogline_cloud.kafka.clients import SESSION_TIMEOUT_MS
from fogline_cloud.kafka.hanging_transactions import MARKERS_LIMIT_S
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import kill_child, start_child, stop_children

TAKEOVER_S = 15.0
ROLLING_S = 30.0
"""A figure: only `make chaos` measures it, on a machine that has nothing else to do."""
RESTARTS = 50


@asynccontextmanager
async def two_bridges(kafka, tenant, folder, **gateway):
    """A site whose shards two bridge processes share; each shard has a gateway under load."""
    site = ProcessLine(tenant, folder, kafka.bootstrap)
    try:
        programs = [site.bridge(name) for name in ("bridge-1", "bridge-2")]
        await asyncio.gather(*(start_child(program) for program in programs))
        owners = await site.shared("bridge-1", "bridge-2")
        for shard in range(site.shards):
            site.open_gateway(site.gateway_of(shard), "bridge-1", "bridge-2", **gateway)
        await asyncio.gather(*(site.lands(name, "nothing lands") for name in site.outboxes))
        yield site, owners
    finally:
        await site.close()


@pytest.mark.slow
@pytest.mark.fault("K4")
async def test_takeover_after_kill_lands_new_data(kafka, tenant, folder):
    """K4: the bridge that owns half of the shards is killed under load; the other serves them, on an idle machine in < 15 s."""
    async with two_bridges(kafka, tenant, folder) as (site, owners):
        await kill_child(site.bridges["bridge-1"])
        moved = [site.gateway_of(shard) for shard, owner in owners.items() if owner == "bridge-1"]
        took = await asyncio.gather(*(site.lands(name, "the other does not take over") for name in moved))
        await site.drain()
        print(f"takeover: new data landed after {max(took):.1f} s; {await site.check()} events, 0 lost, 0 duplicate")


@pytest.mark.fault("K4")
def test_the_production_time_outs_let_another_bridge_take_over_in_15_s():
    """K4: the group notices the death, the heir looks for hanging transactions, and gateways connect again."""
    assert SESSION_TIMEOUT_MS / 1000 + MARKERS_LIMIT_S + Backoff().base_s < TAKEOVER_S


@pytest.mark.fault("K3")
async def test_takeover_from_a_frozen_bridge_which_wakes_up_and_commits_nothing(kafka, tenant, folder):
    """K3: the owner is stopped under load, the other takes over, the owner goes on: 0 lost, 0 duplicate."""
    impatient = {"backoff": Backoff(base_s=0.5, cap_s=1.0), "idle_timeout_s": 2.0}
    async with two_bridges(kafka, tenant, folder, **impatient) as (site, owners):
        frozen = site.bridges["bridge-1"]
        frozen.send(signal.SIGSTOP)
        heir_has = await site.shared("bridge-2")
        moved = [site.gateway_of(shard) for shard, owner in owners.items() if owner == "bridge-1"]
        await asyncio.gather(*(site.lands(name, "the other does not take over") for name in moved))
        frozen.send(signal.SIGCONT)
        await site.shared("bridge-1", "bridge-2")  # it has understood, and got its share again
        await asyncio.gather(*(site.lands(name, "nothing lands after that") for name in site.outboxes))
        await site.drain()
        print(f"{len(heir_has)} shards at the heir; {await site.check()} events, 0 lost, 0 duplicate")


@pytest.mark.slow
@pytest.mark.fault("K4")
async def test_takeover_by_a_third_bridge_that_joins_and_leaves_in_mid_batch(kafka, tenant, folder):
    """K4: a third bridge joins, restarts, and is killed, all under load: 0 lost, 0 duplicate."""
    async with two_bridges(kafka, tenant, folder) as (site, _):
        third = site.bridge("bridge-3")
        for end in (stop_children, kill_child):
            await start_child(third)
            owners = await site.shared("bridge-1", "bridge-2", "bridge-3")
            moved = next(shard for shard, owner in owners.items() if owner == "bridge-3")
            await site.lands(site.gateway_of(moved), "nothing lands at the third bridge")
            await end(third)
        await asyncio.gather(*(site.lands(name, "nothing lands in the end") for name in site.outboxes))
        await site.drain()
        print(f"{await site.check()} events through the rebalances, 0 lost, 0 duplicate")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("K4")
async def test_50_rolling_restarts_lose_and_double_nothing(kafka, tenant, folder):
    """K4: two bridges under load are ended in order and started again in turn; what they had lands again in < 30 s."""
    async with two_bridges(kafka, tenant, folder, backoff=Backoff(0.05, 1.0)) as (site, _):
        took = []
        for number in range(RESTARTS):
            program = site.bridges[f"bridge-{number % 2 + 1}"]
            await stop_children(program)
            await start_child(program)
            took += await asyncio.gather(*(site.lands(name, f"restart {number}", ROLLING_S) for name in site.outboxes))
        await site.drain()
        print(f"{RESTARTS} restarts: all shards land again after {max(took):.1f} s at the most")
        print(f"{await site.check()} events, 0 lost, 0 duplicate")
