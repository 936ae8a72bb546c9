"""X7 with bridge, gateway, journal and a real broker: everyone who asks gets one verdict, the one of every place."""

import asyncio
import json

import pytest

from e2e.command_line import fogline
from e2e.command_states import in_state
from fogline.commands.command import CommandState
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_lab.amqp import within
from fogline_lab.device.command_device import OK, CommandDevice
from fogline_lab.line.line import commandable, gateway

TTL_S = 120.0


@pytest.mark.fault("X7")
async def test_a_command_that_waits_is_cancelled_for_everyone(line):
    """Whoever sent it, another operator, the command line, and whoever asks twice; the device never sees it."""
    async with commandable(line) as (bridge, _, downlink):
        async with (
            Operator("127.0.0.1", line.port, line.tenant) as sender,
            Operator("127.0.0.1", line.port, line.tenant) as other,
        ):
            asked = asyncio.create_task(sender.request(Ask("lamp-1", "switch", ttl_s=TTL_S, message_id="m-1")))
            command_id = await in_state(line, CommandState.DISPATCHED)
            answers = await within(
                asyncio.gather(other.cancel(command_id), sender.cancel(message_id="m-1"), other.cancel(command_id)),
                "no verdict",
            )
            assert [(each.state, each.status) for each in answers] == [(CommandState.CANCELLED, 200)] * 3
            verdict = await within(asked, "the operator hears nothing")
            assert (verdict.state, verdict.status, verdict.command_id) == (CommandState.CANCELLED, 410, command_id)
            assert "cancelled by client" in verdict.why
        told = await fogline(line, "cancel", command_id, "--json")
        assert (told.status, json.loads(told.out)["state"]) == (0, "CANCELLED")
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        done = await fogline(line, "send", "lamp-1", "blink", "--output", "json")
        finished = json.loads(done.out)["command_id"]
        assert device.ran == [finished]
        late = await fogline(line, "cancel", finished)
        assert (late.status, f"{finished}: 409, SUCCEEDED: it is too late" in late.err) == (1, True)
        nobody = await fogline(line, "cancel", "5f0c")
        assert (nobody.status, "5f0c: 404, no commands begin with 5f0c" in nobody.err) == (1, True)
        unknown = await fogline(line, "cancel", "0" * 32)
        assert (unknown.status, f"404, command '{'0' * 32}' is not known here" in unknown.err) == (1, True)
        begun = await fogline(line, "cancel", command_id[:8])
        assert (begun.status, f"{command_id}: CANCELLED" in begun.err) == (0, True)
        assert bridge.gateways.names == ["gw-1"]
    assert await in_state(line, CommandState.CANCELLED)


@pytest.mark.fault("X7")
async def test_a_device_that_has_the_command_decides_by_its_answer(line):
    async with commandable(line) as (_, _, downlink), Operator("127.0.0.1", line.port, line.tenant) as operator:
        device = CommandDevice(downlink, answer=None)
        downlink.reachable("lamp-1", device)
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=TTL_S)))
        await within(device.came.wait(), "it was not run")
        (command_id,) = device.ran
        cancelled = asyncio.create_task(operator.cancel(command_id))
        await in_state(line, CommandState.CANCELLING)
        downlink.answer("lamp-1", command_id, OK, lambda _: None)
        verdict, end = await within(asyncio.gather(cancelled, asked), "no verdict")
        assert (verdict.state, verdict.status, end.state) == (CommandState.SUCCEEDED, 409, CommandState.SUCCEEDED)


@pytest.mark.fault("X7")
async def test_a_cancellation_waits_for_the_gateway_and_outlives_the_bridge(line):
    """The gateway has the command and is away; another bridge has taken the shard when it is back."""
    async with commandable(line):
        pass
    operator = Operator("127.0.0.1", line.port, line.tenant)
    async with operator:
        async with line.bridge():
            async with gateway(line):
                asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=TTL_S)))
                command_id = await in_state(line, CommandState.DISPATCHED)
            cancelled = asyncio.create_task(operator.cancel(command_id))
            await in_state(line, CommandState.CANCELLING)
        async with line.bridge("bridge-2"), gateway(line) as (_, downlink):
            device = CommandDevice(downlink)
            downlink.reachable("lamp-1", device)
            end = await within(asked, "no verdict", 60)
            # The device may have got it before the gateway was told: then it was too late, for everyone.
            assert (await within(cancelled, "no verdict", 60)).state is end.state
            assert len(device.ran) == (end.state is CommandState.SUCCEEDED)
