"""One command for many devices: filters, a stop at too many failures, and a run that goes on after an interruption."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

from e2e.device_registry import edited, known
from fogline.amqp.outcome import ACCEPTED
from fogline.commands.command import Reply
from fogline_cloud.commands.client.command_group import GroupCommand, GroupFile, GroupRun
from fogline_cloud.commands.client.operator import Operator
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import commandable, serving
from fogline_lab.waiting import until_not

NAMES = [f"lamp-{number}" for number in range(1, 13)]


@asynccontextmanager
async def lamps(line, *, failing: tuple[str, ...] = ()):
    """A bridge, a gateway with twelve lamps of which some fail, and their entries in the registry."""
    async with commandable(line) as (bridge, outbox, downlink):
        for number, name in enumerate(NAMES[1:], 2):
            await line.put(outbox, number, device=name)
        await line.drained(outbox)
        body = b'{"type": "lamp", "tags": {"site": "berlin"}}'
        for name in NAMES:
            assert await edited(line, name, "set", body) == ACCEPTED
        await known(bridge, lambda table: all(table.get(name) is not None for name in NAMES))
        answers = {name: Reply(500 if name in failing else 200) for name in NAMES}
        devices = {name: CommandDevice(downlink, name, answers[name]) for name in NAMES}
        yield bridge, downlink, devices


def group_of(line, **fields) -> GroupFile:
    command = GroupCommand(
        id="g1",
        tenant=line.tenant,
        devices=NAMES,
        name="switch",
        ttl_s=60.0,
        created_ms=time.time_ns() // 1_000_000,
        **{"rate_s": 1000.0, **fields},
    )
    return GroupFile.create(line.folder / "groups", command)


async def test_a_group_reaches_all_devices_that_match(line, fogline):
    async with lamps(line, failing=("lamp-3",)) as (_, downlink, devices):
        for name, device in devices.items():
            downlink.reachable(name, device)
        folder = str(line.folder / "groups")
        words = ("--where", "type=lamp,site=ber*", "switch", "--json", '{"on": true}', "--groups", folder, "--output", "json")
        status, out, _ = await fogline("command", "send", *words)
        found = json.loads(out)
        assert (status, found["states"], found["left"]) == (1, {"FAILED": 1, "SUCCEEDED": 11}, 0)
        assert [(each["device"], each["status"]) for each in found["others"]] == [("lamp-3", 500)]
        assert [len(device.ran) for device in devices.values()] == [1] * 12
        assert (await fogline("command", "group", "resume", found["group"], "--groups", folder))[0] == 1
        assert [len(device.ran) for device in devices.values()] == [1] * 12


async def test_an_interrupted_group_goes_on_and_sends_nothing_twice(line):
    async with lamps(line) as (_, downlink, devices):
        group = group_of(line)
        for name in NAMES[:4]:
            downlink.reachable(name, devices[name])
        async with Operator("127.0.0.1", line.port, line.tenant, name=group.command.operator_name) as operator:
            running = asyncio.create_task(GroupRun(group, operator).run())

            async def few() -> bool:
                return len(group.verdicts) < 4 or downlink.counters.received < 12

            await until_not(few, "the first four devices give no verdict")
            running.cancel()
            await asyncio.wait({running})
        again = GroupFile.read(line.folder / "groups", "g1")
        assert sorted(again.left) == sorted(NAMES[4:])
        for name, device in devices.items():
            downlink.reachable(name, device)
        async with Operator("127.0.0.1", line.port, line.tenant, name=group.command.operator_name) as operator:
            await within(GroupRun(again, operator).run(), "the group does not end")
        assert (dict(again.states), again.left) == ({"SUCCEEDED": 12}, [])
        assert [len(device.ran) for device in devices.values()] == [1] * 12


@pytest.mark.slow
async def test_too_many_failures_cancel_the_rest_and_a_cancelled_group_is_over(line):
    async with lamps(line, failing=("lamp-1", "lamp-2", "lamp-3")) as (_, downlink, devices):
        group = group_of(line, stop_share=0.25)
        async with Operator("127.0.0.1", line.port, line.tenant, name=group.command.operator_name) as operator:
            running = asyncio.create_task(GroupRun(group, operator).run())

            async def unsent() -> bool:
                return downlink.counters.received < 12

            await until_not(unsent, "the commands do not travel")
            for name in NAMES[:3]:
                downlink.reachable(name, devices[name])
            await within(running, "the group does not stop")
            assert dict(group.states) == {"FAILED": 3, "CANCELLED": 9}
        for name, device in devices.items():
            downlink.reachable(name, device)
        assert [len(device.ran) for device in devices.values()] == [1] * 3 + [0] * 9


@pytest.mark.slow
async def test_a_cancelled_group_sends_nothing_more(line):
    async with lamps(line) as (_, _, _):
        group = group_of(line)
        async with Operator("127.0.0.1", line.port, line.tenant, name=group.command.operator_name) as operator:
            await within(GroupRun(group, operator).cancel(group.left), "the group is not cancelled")
        assert (dict(group.states), group.left) == ({"NOT_SENT": 12}, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("send", "lamp-1", "switch", "--where", "type=lamp"), "name the command and no device"),
        (("send", "--where", "type=lamp"), "name the command and no device"),
        (("send", "switch", "--where", "type=nothing"), "no device matches"),
        (("send", "--where", "lamp", "switch"), "--where 'lamp': expected name=value"),
        (("send", "--where", "type=x", "switch", "--stop-at-failures", "200%"), "--stop-at-failures '200%'"),
        (("send", "--where", "type=nothing", "switch"), "no device matches"),
        (("group", "show", "missing"), "there is no group missing"),
    ],
    ids=str,
)
async def test_wrong_input_is_one_sentence_and_status_2(line, fogline, words, says):
    async with serving(line):
        status, _, err = await fogline("command", *words)
    assert (status, err.count("\n")) == (2, 1)
    assert says in err
