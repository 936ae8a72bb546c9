"""Commands by way of a router or a broker that fails: each has a verdict, none runs late, none runs twice."""

import asyncio
from collections import Counter
from random import Random

import pytest

from chaos.router_faults import RouterFaults
from chaos.via_world import via_world
from fogline.commands.command import CommandState
from fogline.process.files.via_settings import ViaKind
from fogline_cloud.authority.certificates import Role
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.machine.boot import beacon
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.intermediary.artemis import Artemis
from fogline_lab.intermediary.router import Router

EVENTS = 20_000
SENDERS = 4
"""Commands of one device that are under way at a time."""
VERDICT_S = 240.0
NEVER_RAN = {CommandState.EXPIRED, CommandState.REJECTED, CommandState.CANCELLED}


class PunctualDevice(CommandDevice):
    """A device that notes which commands came after their deadline."""

    def __init__(self, commands, name):
        super().__init__(commands, name)
        self.late = []

    def execute(self, command):
        now, deadline = beacon(), command.deadline
        if deadline is None or deadline.boot_id != now.boot_id or now.boottime_ms > deadline.boottime_ms:
            self.late.append(command.id)
        super().execute(command)


async def lamps(world):
    """A device behind each gateway, of which the bridges know."""
    devices = {}
    for name, each in world.gateways.items():
        device = devices[name] = PunctualDevice(each.downlink, f"lamp-of-{name}")
        each.downlink.reachable(device.name, device)
        await world.line.put(each.outbox, -len(devices), device=device.name)
    await world.drained()
    return devices


async def commanded(world, devices, work):
    """Send commands, long and short ones, until `work` is done. Returns their verdicts."""
    chance, verdicts = Random(39), []
    done = asyncio.ensure_future(work)

    async def send(operator, device):
        while not done.done():
            ask = Ask(device.name, "switch", b"{}", ttl_s=chance.choice([1.0, 3.0, 60.0]))
            verdicts.append(await within(operator.request(ask), f"no verdict: {operator.why}", VERDICT_S))

    security = world.site.client(Role.OPERATOR, "alice")
    async with Operator(HERE, world.ports["bridge-1"], world.line.tenant, security=security) as operator:
        await asyncio.gather(done, *(send(operator, each) for each in [*devices.values()] * SENDERS))
    return verdicts


def judge(devices, verdicts):
    """0 late, 0 twice; and a verdict says what the device did."""
    ran = Counter(command for device in devices.values() for command in device.ran)
    states = {each.command_id: each.state for each in verdicts}
    counts = ", ".join(f"{count} {state}" for state, count in Counter(states.values()).most_common())
    print(f"{len(verdicts)} commands: {counts}; {len(ran)} ran")
    assert [command for device in devices.values() for command in device.late] == []
    assert [command for command, times in ran.items() if times > 1] == []
    assert [command for command, state in states.items() if state is CommandState.SUCCEEDED and not ran[command]] == []
    assert [command for command, state in states.items() if state in NEVER_RAN and ran[command]] == []
    assert sum(state is CommandState.SUCCEEDED for state in states.values()) >= len(devices)


@pytest.mark.slow
@pytest.mark.fault("N11")
async def test_via_a_router_that_fails_in_each_of_its_ways_no_command_is_late_or_runs_twice(line):
    async with Router() as router, via_world(line, router.port, ViaKind.ROUTER) as world:
        devices = await lamps(world)
        verdicts = await commanded(world, devices, world.load(EVENTS, RouterFaults(router, world).all()))
        await world.drained()
    judge(devices, verdicts)


@pytest.mark.slow
@pytest.mark.fault("N11")
async def test_via_an_artemis_that_is_killed_no_command_is_late_or_runs_twice(line, folder):
    with Artemis(folder / "broker") as broker:
        async with via_world(line, broker.port, ViaKind.BROKER) as world:

            async def killed():
                await broker.kill()
                await broker.started()

            devices = await lamps(world)
            verdicts = await commanded(world, devices, world.load(EVENTS, [killed, world.restart_a_bridge, killed, killed]))
            await world.drained()
    judge(devices, verdicts)
