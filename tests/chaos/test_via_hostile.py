"""A router in the hands of an enemy: nothing counts that should not, the audit says why, and honest gateways go on."""

import asyncio
import shutil
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from chaos.via_world import via_world
from fogline.amqp.wire import decode, encode
from fogline.commands.command import CommandState
from fogline.process.files.via_settings import ViaKind
from fogline_cloud.audit.record import decode_audit
from fogline_cloud.authority.certificates import Role
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.intermediary.hostile_router import HostileRouter
from fogline_lab.intermediary.mischief import Mischief
from sampling import a_few

VICTIM, OTHER = "gw-1", "gw-4"
REASONS = {
    Mischief.ALTER_BODY: ("its signature is wrong",),
    Mischief.ALTER_PROPERTY: ("its signature is wrong", "no hello of it counts here", "its epoch is not", "of its name"),
    Mischief.STRIP: ("it is not signed", "shows no certificate"),
    Mischief.SWAP_BODIES: ("its signature is wrong",),
    Mischief.MISROUTE: ("no hello of it counts here", "sent before"),
    Mischief.REPLAY: ("sent before",),
    Mischief.REPLAY_OLD: ("sent before", "its epoch is not"),
    Mischief.IMPERSONATE: ("its signature is wrong", "no hello of it counts here", "of its name", "its epoch is not"),
}
"""Reasons of which the audit names at least one, for each kind that a bridge sees. Of the others only the gateway notices."""


@asynccontextmanager
async def behind_an_enemy(line):
    async with HostileRouter(39) as router, via_world(line, router.port, ViaKind.ROUTER, gateways=(VICTIM, OTHER)) as world:
        router.enemy.impostor = OTHER
        yield router.enemy, world


async def refusals(world):
    """The reasons that the audit has."""
    clients, tenant = KafkaClients(world.line.cloud.kafka), world.line.tenant
    records = await asyncio.to_thread(read_committed, clients, {(topics.audit(tenant), shard): None for shard in range(2)})
    found = [decode_audit(each.value) for each in records]
    return [each.why for each in found if each.decision in ("MESSAGE REFUSED", "EVENTS REFUSED", "CONNECTION REFUSED")]


@pytest.mark.parametrize("kind", a_few(Mischief, Mischief.SWAP_BODIES), ids=str)
@pytest.mark.fault("S12")
async def test_via_an_enemy_events_land_once_and_each_kind_of_mischief_is_in_the_audit(line, kind):
    async with behind_an_enemy(line) as (enemy, world):
        await world.load(400)
        await world.drained()
        enemy.kinds, enemy.share = [kind], 0.5
        while enemy.done[kind] < 4:
            await world.load(400, first=len(world.line.acknowledged))
            await asyncio.sleep(0.2)
        enemy.truce()
        await world.load(400, first=len(world.line.acknowledged))
        await world.drained()
        found = await refusals(world)
    print(f"{kind}: {enemy.done[kind]} times; audit: {Counter(each.partition(': ')[2] or each for each in found)}")
    await world.check()
    if kind in REASONS:
        assert any(reason in each for each in found for reason in REASONS[kind]), found


@pytest.mark.fault("S12")
async def test_via_an_enemy_a_forged_command_runs_on_no_device_and_a_replayed_one_once(line):
    async with behind_an_enemy(line) as (enemy, world):
        lamp = world.gateways[VICTIM]
        device = CommandDevice(lamp.downlink, "lamp-of-gw-1")
        lamp.downlink.reachable(device.name, device)
        await world.line.put(lamp.outbox, 0, device=device.name)
        await world.drained()
        async with Operator(
            HERE, world.ports["bridge-1"], line.tenant, security=world.site.client(Role.OPERATOR, "alice")
        ) as operator:
            verdict = await within(operator.request(Ask(device.name, "switch", b"{}", ttl_s=60)), "no verdict")
            assert verdict.state is CommandState.SUCCEEDED
            sent, *_ = [each for each in enemy.passed if b"switch" in each.data and each.address.startswith("control/")]
            message = decode(sent.data)
            forged = [
                message,
                _with(message, message_number=10**6),
                _with(message, command_id="forged", message_number=10**6 + 1),
            ]
            for each in forged:
                enemy.inject(sent.address, encode(each))
            enemy.replay("control/")
            verdict = await within(operator.request(Ask(device.name, "switch", b"{}", ttl_s=60)), "no verdict")
            assert verdict.state is CommandState.SUCCEEDED
        assert len(device.ran) == 2


def _with(message, **properties):
    return replace(message, properties={**message.properties, **properties})


@pytest.mark.slow
@pytest.mark.fault("S12")
async def test_via_an_enemy_who_keeps_two_copies_of_an_outbox_apart_all_events_land_and_none_is_another(line):
    """Both copies have one certificate, and streams of one name. The router passes answers only to who has asked."""
    async with behind_an_enemy(line) as (enemy, world):
        await world.load(200)
        await world.drained()
        await world.stop_gateway(VICTIM)
        shutil.copytree(line.folder / VICTIM, line.folder / "copied")
        await world.start_gateway(VICTIM)
        enemy.apart = True
        await world.start_gateway(VICTIM, "copied")
        for first in range(200, 1000, 100):
            await world.load(100, first=first)
        await world.drained()
        enemy.truce()
    await world.check()
    identities = Counter(dict(each.headers)["ce_id"] for each in line.records())
    assert [identity for identity, times in identities.items() if times > 1] == []
