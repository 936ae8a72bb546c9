"""The bridge is killed between the steps of a durable command: it is done once, and its operator gets the verdict."""

import asyncio
import signal

import pytest

from chaos.command_crash import TTL_S, gateway, heard_of, operator
from chaos.places_to_crash import DIRECT_POINTS
from fogline.commands.command import CommandState
from fogline.process.crash_points import CrashPoint
from fogline_cloud.commands.client.operator import Ask
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import start_child
from fogline_lab.waiting import until
from sampling import a_few


@pytest.mark.parametrize(
    "point",
    a_few(
        [CrashPoint.BEFORE_COMMAND_SENT, CrashPoint.BEFORE_VERDICT_COMMIT, *DIRECT_POINTS[1:]], CrashPoint.BEFORE_VERDICT_COMMIT
    ),
)
async def test_a_bridge_killed_during_a_durable_command_does_it_once(kafka, tenant, folder, point):
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        crashing = site.bridge("bridge-1")
        await start_child(crashing, crash_at=point)
        async with gateway(site) as (outbox, downlink), operator(site) as op:
            await heard_of(outbox)
            device = CommandDevice(downlink)
            downlink.reachable("lamp-1", device)
            asked = asyncio.create_task(op.request(Ask("lamp-1", "switch", b"{}", ttl_s=10 * TTL_S, message_id="m-1")))
            assert await asyncio.to_thread(crashing.wait) == -signal.SIGKILL
            await start_child(crashing)
            verdict = await within(asked, "no verdict", TTL_S)
            assert verdict.state is CommandState.SUCCEEDED
            await until(lambda: len(device.ran) == 1, "it was not done exactly once")
            print(f"{point}: done once")
    finally:
        await site.close()
