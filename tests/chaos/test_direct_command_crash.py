"""The bridge is killed between the steps of a direct command (B3): done at most once, and never after "did nothing"."""

import asyncio
import signal
from contextlib import asynccontextmanager, suppress

import pytest

from chaos.site import Site, until, until_async
from e2e.parts import Device
from fogline.amqp.backoff import Backoff
from fogline.command import CommandState
from fogline.errors import Unreachable
from fogline.event import Receipt
from fogline.process.crash_points import CrashPoint
from fogline.signature import TrustedKeys
from fogline_cloud.commands.client import Ask, Operator
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.amqp import within
from fogline_lab.events import make_arrival
from fogline_lab.supervisor import start_child

POINTS = (CrashPoint.BEFORE_COMMAND_SENT, CrashPoint.BEFORE_COMMAND_END_COMMIT, CrashPoint.BEFORE_COMMAND_SETTLED)
WITH_DEVICE = (CrashPoint.BEFORE_COMMAND_SENT, CrashPoint.BEFORE_VERDICT_COMMIT)
TTL_S = 60.0


@asynccontextmanager
async def gateway(site: Site):
    """A gateway that takes commands, for as long as the block lasts."""
    uplink = UplinkSettings(bridge=f"127.0.0.1:{site.ports['bridge-1']}", statement_s=0.5)
    outbox = Outbox.open(EdgeSettings(tenant=site.tenant, gateway="gw-1", data=str(site.folder / "gw-1"), uplink=uplink))
    downlink = Downlink(outbox, TrustedKeys())
    await downlink.start()
    task = asyncio.create_task(Uplink(outbox, uplink, downlink.received, Backoff(0.05, 0.2)).run())
    try:
        yield outbox, downlink
    finally:
        task.cancel()
        await asyncio.wait({task})
        downlink.close()
        await outbox.close()


async def heard_of(outbox: Outbox) -> None:
    """Have the bridge learn which gateway reaches the device."""
    stored = asyncio.get_running_loop().create_future()
    outbox.port.put(make_arrival(1), stored.set_result)
    assert await within(stored, "not stored") is Receipt.STORED

    async def landed() -> bool:
        return all(stream.head == stream.settled for stream in await outbox.streams.pending())

    await until_async(landed, "nothing lands")


def operator(site: Site) -> Operator:
    """The same operator at each call."""
    return Operator("127.0.0.1", site.ports["bridge-1"], site.tenant, name="op-1")


DIRECT = Ask("lamp-1", "switch", b"{}", durable=False, ttl_s=TTL_S, message_id="m-1")


@pytest.mark.parametrize(
    ("point", "present"),
    [*((point, True) for point in WITH_DEVICE), *((point, present) for point in POINTS[1:] for present in (False, True))],
)
@pytest.mark.fault("X12")
async def test_a_bridge_killed_during_a_direct_command_neither_repeats_nor_starts_it(kafka, tenant, folder, point, present):
    """X12: afterwards the device is there; only a copy from the operator itself may have the command done then."""
    site = Site(tenant, folder, kafka.bootstrap, shards=1)
    try:
        crashing = site.bridge("bridge-1")
        await start_child(crashing, crash_at=point)
        async with gateway(site) as (outbox, downlink):
            await heard_of(outbox)
            device = Device(downlink)
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
