"""X7: the bridge is killed between the steps of a cancellation; everyone hears the same, and the device sees nothing."""

import asyncio
import signal

import pytest

from chaos.command_crash import TTL_S, gateway, heard_of, operator
from chaos.places_to_crash import CANCEL_POINTS
from fogline.commands.command import CommandState
from fogline_cloud.commands.client.operator import Ask
from fogline_lab.amqp import within
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import start_child
from fogline_lab.waiting import until
from sampling import a_few


@pytest.mark.parametrize("point", a_few(CANCEL_POINTS, CANCEL_POINTS[0]))
@pytest.mark.fault("X7")
async def test_a_bridge_killed_during_a_cancellation_leaves_one_verdict(kafka, tenant, folder, point):
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        crashing = site.bridge("bridge-1")
        await start_child(crashing, crash_at=point)
        async with gateway(site) as (outbox, downlink), operator(site) as op:
            await heard_of(outbox)
            asked = asyncio.create_task(op.request(Ask("lamp-1", "switch", ttl_s=10 * TTL_S, message_id="m-1")))
            await until(lambda: downlink.counters.received == 1, "the gateway does not get it")
            cancelled = asyncio.create_task(op.cancel(message_id="m-1"))
            assert await asyncio.to_thread(crashing.wait) == -signal.SIGKILL
            await start_child(crashing)
            verdict, end = await within(asyncio.gather(cancelled, asked), "no verdict", TTL_S)
            assert (verdict.state, end.state) == (CommandState.CANCELLED, CommandState.CANCELLED)
            device = CommandDevice(downlink)
            downlink.reachable("lamp-1", device)
            done = await within(op.request(Ask("lamp-1", "blink", ttl_s=TTL_S)), "the next one is not run", TTL_S)
            assert (device.ran, done.state) == ([done.command_id], CommandState.SUCCEEDED)
            print(f"{point}: cancelled for everyone, run 0 times")
    finally:
        await site.close()
