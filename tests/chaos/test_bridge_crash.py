"""The bridge is killed at every point of a shard's life at which it matters."""

import asyncio
import signal
import sys

import pytest

from chaos.places_to_crash import BRIDGE_POINTS
from fogline.events.event import Lane
from fogline.process.crash_points import CrashPoint
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import end_offset
from fogline_lab.gateway.connected_gateway import Impatient
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import ChildProcess, start_child
from fogline_lab.waiting import until
from sampling import a_few

PATIENT = """\
import sys
from fogline_cloud.kafka import clients as kafka
kafka.TRANSACTION_TIMEOUT_MS = 600_000
from fogline_cloud.cli.main import main
sys.exit(main())
"""
"""A bridge whose open transaction Kafka ends after ten minutes, which is longer than any wait here."""


def visible(site):
    """Return the end offset of the only shard for `read_committed` consumers, without a wait for open transactions."""
    return end_offset(site.clients.reader(), topics.of_lane(Lane.TELEMETRY, site.tenant), 0)[1]


@pytest.mark.parametrize("point", a_few(BRIDGE_POINTS, CrashPoint.IN_TRANSACTION))
@pytest.mark.fault("C4")
async def test_a_bridge_killed_at_a_point_loses_and_doubles_nothing(kafka, tenant, folder, point):
    """C4: killed before produce: nothing; in the transaction: invisible; after the commit: the resend is dropped."""
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        command = [sys.executable, "-c", PATIENT, "bridge", "run", "--insecure-dev", "--config", folder / "bridge-1.toml"]
        crashing = site.bridges["bridge-1"] = ChildProcess("bridge-1", command, folder / "bridge-1.log")
        site.bridge("bridge-1")
        site.open_gateway("gw-1", "bridge-1", backoff=Impatient(0.05, 0.2))
        await start_child(crashing, crash_at=point)
        assert await asyncio.to_thread(crashing.wait) == -signal.SIGKILL

        async def as_expected() -> bool:  # the broker may still be writing the end of the transaction
            committed = point is CrashPoint.AFTER_COMMIT_BEFORE_SETTLING
            return (await asyncio.to_thread(visible, site) > 0) == committed

        await until(as_expected, f"what is visible after {point} is not right")
        await start_child(crashing)  # it does not wait until the dead one's transaction times out
        await site.lands("gw-1", "nothing lands after the restart")
        await site.drain()
        print(f"{point}: {await site.check()} events in the end, 0 lost, 0 duplicate")
    finally:
        await site.close()
