"""A router or a broker between gateways and bridges fails in each of its ways: nothing is lost, nothing is double."""

import asyncio
from contextlib import asynccontextmanager
from math import inf
from random import Random

import pytest

from chaos.router_faults import RouterFaults
from chaos.via_world import via_world
from fogline.process.files.via_settings import ViaKind
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.intermediary.router import Router
from fogline_lab.tcp_line import LineFault, PlannedFault, TcpLine, no_fault

MANY, FEW = 100_000, 2_000
CUTS = 6


@asynccontextmanager
async def behind_a_router(line):
    async with Router() as router, via_world(line, router.port, ViaKind.ROUTER) as world:
        yield router, world


@pytest.mark.fault("N11")
async def test_via_a_router_that_is_killed_with_outcomes_on_their_way_events_land_once(line):
    async with behind_a_router(line) as (router, world):
        faults = RouterFaults(router, world)
        await world.load(FEW, [faults.killed_with_outcomes_on_their_way])
        await world.drained()
    await world.check()


@pytest.mark.slow
@pytest.mark.fault("N11")
async def test_via_a_router_that_fails_in_each_of_its_ways_100000_events_land_once(line):
    async with behind_a_router(line) as (router, world):
        await world.load(MANY, RouterFaults(router, world).all())
        await world.drained()
    await world.check()


@pytest.mark.slow
@pytest.mark.fault("N11")
async def test_via_an_artemis_that_is_killed_and_started_again_100000_events_land_once(line, folder):
    with Artemis(folder / "broker") as broker:
        async with via_world(line, broker.port, ViaKind.BROKER) as world:

            async def killed():
                await broker.kill()
                await asyncio.sleep(0.2)  # gateways try in vain
                await broker.started()

            async def stopped():
                await broker.stop()
                await broker.started()

            await world.load(MANY, [killed, stopped, world.restart_a_bridge, killed, killed])
            await world.drained()
    await world.check()


@pytest.mark.slow
@pytest.mark.fault("N11")
async def test_via_a_router_behind_proxies_that_cut_events_land_once(line):
    chance = Random(39)

    def plan():
        return PlannedFault(LineFault.RESET, chance.randrange(10_000, 60_000), inf)

    async with Router() as router, TcpLine(router.port, plan) as near, TcpLine(router.port, plan) as far:
        async with via_world(line, near.port, ViaKind.ROUTER, bridges_port=far.port) as world:
            while min(len(near.failed), len(far.failed)) < CUTS:
                await world.load(FEW, first=len(line.acknowledged), noise_bytes=300)
            near.plan = far.plan = no_fault
            await world.drained()
        print(f"{len(near.failed)} cuts at gateways, {len(far.failed)} at bridges")
    await world.check()
