"""Gateways and bridges that both connect out to a router between them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fogline.commands.command import CommandState
from fogline.process.files.via_settings import ViaKind
from fogline_cloud.authority.certificates import Role
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.commands.record import CommandRecord
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, AuthorityFolder
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.intermediary.hostile_router import HostileRouter
from fogline_lab.intermediary.router import Router
from fogline_lab.line.bridge_pair import two_bridges
from fogline_lab.line.line import Line, gateway, serving
from fogline_lab.line.via_line import behind
from fogline_lab.waiting import until


@asynccontextmanager
async def by_router(line: Line) -> AsyncIterator[tuple[Router, AuthorityFolder]]:
    """Run a router, and let the tenant go by way of it."""
    async with Router() as router:
        yield router, behind(line, router.port)[1]


async def ask(line: Line, site: AuthorityFolder, device: str, port: int) -> CommandRecord:
    """Send a command as an operator. Returns its verdict."""
    async with Operator(HERE, port, line.tenant, security=site.client(Role.OPERATOR, "alice")) as operator:
        return await within(operator.request(Ask(device, "switch", b"{}", ttl_s=60)), f"no answer: {operator.why}")


async def test_acknowledged_events_land_once_by_way_of_a_router(line):
    async with by_router(line), line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, *range(1000))
        await line.drained(outbox)
        assert bridge.gateways.get("gw-1").principal.proof == "certificate"
    assert await asyncio.to_thread(line.landed) == list(range(1000))


async def test_a_command_reaches_a_device_behind_a_router_and_its_verdict_comes_back(line):
    async with by_router(line) as (_, site), serving(line), gateway(line) as (outbox, downlink):
        device = CommandDevice(downlink)
        downlink.reachable(device.name, device)
        await line.put(outbox, 0, device=device.name)
        await line.drained(outbox)
        assert (await ask(line, site, device.name, line.port)).state is CommandState.SUCCEEDED


@pytest.mark.slow
async def test_acknowledged_events_and_commands_pass_a_broker_that_is_killed_in_between(line):
    with Artemis(line.folder / "broker") as broker:
        _, site = behind(line, broker.port, ViaKind.BROKER)
        async with serving(line), gateway(line) as (outbox, downlink):
            device = CommandDevice(downlink)
            downlink.reachable(device.name, device)
            await line.put(outbox, *range(500), device=device.name)
            await line.drained(outbox)
            assert (await ask(line, site, device.name, line.port)).state is CommandState.SUCCEEDED
            await broker.kill()
            await line.put(outbox, *range(500, 1000), device=device.name)
            await broker.started()
            await line.drained(outbox)
            assert (await ask(line, site, device.name, line.port)).state is CommandState.SUCCEEDED
            assert len(device.ran) == 2
    assert await asyncio.to_thread(line.landed) == list(range(1000))


async def test_a_router_that_is_killed_and_comes_back_loses_and_doubles_nothing(line):
    async with by_router(line) as (router, _), line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, *range(200))
        router.kill()
        await line.put(outbox, *range(200, 400))
        await router.start()
        await line.drained(outbox)
        await until(lambda: bridge.gateways.names == ["gw-1"], "the gateway does not come back")
    assert await asyncio.to_thread(line.landed) == list(range(400))


async def test_another_bridge_takes_the_shard_over_and_the_gateway_says_hello_to_it(line):
    """The gateway never learns a bridge's address: it asks for the shard's, and both bridges connect out."""
    async with by_router(line) as (_, site), two_bridges(line) as pair, pair.gateway() as (downlink, owner, other):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        assert (pair.bridges[owner].gateways.names, pair.bridges[other].gateways.names) == (["gw-1"], [])
        assert (await ask(line, site, "lamp-1", pair.port(owner))).state is CommandState.SUCCEEDED
        await pair.stop(owner)
        await until(lambda: pair.bridges[other].gateways.names == ["gw-1"], "no hello to the other bridge")
        assert (await ask(line, site, "lamp-1", pair.port(other))).state is CommandState.SUCCEEDED


async def test_all_that_a_router_sends_again_changes_nothing_and_is_in_the_audit(line):
    async with HostileRouter() as router:
        _, site = behind(line, router.port)
        async with serving(line) as bridge, gateway(line) as (outbox, downlink):
            device = CommandDevice(downlink)
            downlink.reachable(device.name, device)
            await line.put(outbox, *range(100), device=device.name)
            await line.drained(outbox)
            assert (await ask(line, site, device.name, line.port)).state is CommandState.SUCCEEDED
            done, refused = len(device.ran), bridge._vias.gateways.refused
            batches = router.enemy.replay("ingest/")
            router.enemy.replay()
            await until(lambda: bridge._vias.gateways.refused >= refused + batches, "replayed batches are not refused")
            assert (await ask(line, site, device.name, line.port)).state is CommandState.SUCCEEDED
            assert len(device.ran) == done + 1
            await line.drained(outbox)
    assert await asyncio.to_thread(line.landed) == list(range(100))
    clients = KafkaClients(line.cloud.kafka)
    audits = await asyncio.to_thread(read_committed, clients, {(topics.audit(line.tenant), shard): None for shard in range(2)})
    assert any(b"it was sent before" in each.value for each in audits)
