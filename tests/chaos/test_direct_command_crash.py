"""The bridge is killed between the steps of a direct command (B3): done at most once, and never after "did nothing"."""

import asyncio
import signal
from contextlib import suppress

import pytest

from chaos.command_crash import TTL_S, gateway, heard_of, operator
from chaos.places_to_crash import DIRECT_POINTS, WITH_DEVICE
from fogline.commands.command import CommandState
from fogline.errors import Unreachable
from fogline.process.crash_points import CrashPoint
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import start_child
from fogline_lab.waiting import until
from sampling import a_few

DIRECT = Ask("lamp-1", "switch", b"{}", durable=False, ttl_s=TTL_S, message_id="m-1")


@pytest.mark.parametrize(
    ("point", "present"),
    a_few(
        [
            *((point, True) for point in WITH_DEVICE),
            *((point, present) for point in DIRECT_POINTS[1:] for present in (False, True)),
        ],
        (CrashPoint.BEFORE_COMMAND_END_COMMIT, True),
    ),
)
@pytest.mark.fault("X12")
async def test_a_bridge_killed_during_a_direct_command_neither_repeats_nor_starts_it(kafka, tenant, folder, point, present):
    """X12: afterwards the device is there; only a copy from the operator itself may have the command done then."""
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        crashing = site.bridge("bridge-1")
        await start_child(crashing, crash_at=point)
        async with gateway(site) as (outbox, downlink):
            await heard_of(outbox)
            device = CommandDevice(downlink)
            if present:
                downlink.reachable("lamp-1", device)
            async with operator(site) as first:
                asked = asyncio.create_task(first.request(DIRECT))
                await until(lambda: not crashing.running or asked.done(), "the bridge neither answers nor is killed")
                assert not asked.done() or asked.result().state is CommandState.SUCCEEDED, asked.result()
                assert await asyncio.to_thread(crashing.wait) == -signal.SIGKILL
                if asked.done():  # by the device's own answer, which the gateway had committed before it sent it
                    assert present
                    assert asked.result().state is CommandState.SUCCEEDED
            with suppress(Unreachable):
                await asked
            if not present:
                downlink.reachable("lamp-1", device)
            await start_child(crashing)
            async with Operator("127.0.0.1", site.ports["bridge-1"], tenant) as other:
                barrier = Ask("lamp-1", "blink", message_id="barrier", ttl_s=TTL_S)
                assert (await within(other.request(barrier), "the heir does not serve", TTL_S)).state is CommandState.SUCCEEDED
            done_before = len(device.ran) - 1
            assert done_before == (1 if present and point is not CrashPoint.BEFORE_COMMAND_SENT else 0)
            async with operator(site) as again:
                verdict = await within(again.request(DIRECT), "its copy gets no answer", TTL_S)
            assert verdict.state is CommandState.SUCCEEDED
            await until(lambda: len(device.ran) == 2, "it was not done exactly once")
            print(f"{point}, device {'present' if present else 'absent'}: done once, {done_before} times before the copy")
    finally:
        await site.close()
