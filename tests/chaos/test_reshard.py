"""More shards under load: bridges and the command are killed, and gateways come back that were offline through the change."""

import asyncio
import itertools
import os
import subprocess
from collections import defaultdict
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from fogline.address import shard_of
from fogline.process.crash_points import VARIABLE, CrashPoint
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import read_committed
from fogline_cloud.kafka.records import position_of
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather
from fogline_lab.gateway.connected_gateway import Impatient
from fogline_lab.ledger_site import LedgerSite, row_of
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import find_script, kill_child, start_child
from fogline_lab.waiting import until

IMPATIENT = Impatient(base_s=0.05, cap_s=0.5)
_numbers = itertools.count()
POINTS = (CrashPoint.AFTER_LAYOUT, CrashPoint.AFTER_FORMER_SHARD_TAKEN, CrashPoint.AFTER_MOVE)


class GrowingLine(ProcessLine):
    """A line whose number of shards is raised while its gateways are under load."""

    async def reshard(self, *points):
        """Run the command with the settings of `bridge-1`: killed at each of these points, then to its end."""
        self.bridge("bridge-1")
        command = [find_script("fogline"), "topics", "reshard", "--config", self.folder / "bridge-1.toml"]
        for point in (*points, None):
            environment = os.environ | ({VARIABLE: point} if point else {})
            done = await asyncio.to_thread(
                subprocess.run, command, env=environment, capture_output=True, text=True, timeout=180, check=False
            )
            assert done.returncode == (-9 if point else 0), done.stderr
        return done.stdout

    async def ended(self, name):
        """Wait until a bridge has noticed the change, and has ended by itself."""

        async def gone():
            return not self.bridges[name].running

        await until(gone, f"{name} does not end")

    async def caught_up(self, gateway):
        """Wait until the bridge has accepted all that a gateway holds now, in each of its streams."""
        held = {each.stream: each.head for each in await self.outboxes[gateway].streams.pending()}

        async def settled():
            left = {each.stream: each.settled for each in await self.outboxes[gateway].streams.pending()}
            return all(left.get(stream, head) >= head for stream, head in held.items())

        await until(settled, f"{gateway} does not catch up", 120)

    def streams(self):
        """The sequences of each stream in each partition, in the order of the offsets."""
        found = defaultdict(lambda: defaultdict(list))
        for topic in topics.raw_topics(self.tenant):
            for each in read_committed(self.clients, {(topic, shard): None for shard in range(self.shards)}):
                place = position_of(each.headers, each.value)
                if place is not None:
                    found[place.gateway, place.stream][each.partition] += range(place.first, place.last + 1)
        return found

    def check_order(self, before):
        """Each stream is in order, and what is in its new shard's partition follows what is in the former one's."""
        moved = 0
        for (gateway, stream), parts in self.streams().items():
            former, now = shard_of(gateway, before), shard_of(gateway, self.shards)
            assert set(parts) <= {former, now}, (gateway, stream)
            in_order = parts.get(former, []) + (parts.get(now, []) if now != former else [])
            assert in_order == list(range(1, len(in_order) + 1)), (gateway, stream)
            moved += len(parts) > 1
        return moved

    async def check_ledger(self):
        """The ledger balances if the flow has read everything. Gateways state their counts after the last event too."""
        found = []

        async def complete():
            found[:] = await asyncio.to_thread(self.ledger)
            return not any(each.pending for each in found)

        await until(complete, "the last statements of the gateways do not land")
        assert [each.text for stream in found for each in judge(stream)] == []
        return len(found)

    def ledger(self):
        """What the ledger finds of each stream, in tables that have what Kafka has."""
        site = LedgerSite(replace(self.cloud, shards=self.shards), self.folder / f"tables-{next(_numbers)}")
        clients = KafkaClients(self.cloud.kafka)
        names = topics.raw_topics(self.tenant)
        places = {(name, shard): None for name in names for shard in range(self.shards)}
        rows = [row_of(each) for each in read_committed(clients, places)]
        site.append("events", rows)
        site.append("readings", [{**row, **reading} for row in rows for reading in row["readings"]])
        settings = replace(site.settings, flow=replace(site.settings.flow, tables=str(site.tables)))
        return gather(clients, settings).streams


@pytest.mark.fault("K28")
async def test_more_shards_under_load_lose_and_double_nothing(kafka, tenant, folder):
    """K28, the short form: one bridge, 2 shards and then 3. One gateway is connected through the change, one is cut off."""
    site = GrowingLine(tenant, folder, kafka.bootstrap, shards=2)
    try:
        await start_child(site.bridge("bridge-1"))
        moving = [name for name in (f"gw-{n}" for n in range(100)) if shard_of(name, 2) != shard_of(name, 3)][:2]
        for name in moving:
            site.open_gateway(name, "bridge-1", backoff=IMPATIENT)
        await asyncio.gather(*(site.lands(name, "nothing lands") for name in moving))
        await site.disconnect(moving[1])
        site.shards = 3
        await site.reshard()
        await site.ended("bridge-1")
        await start_child(site.bridge("bridge-1"))
        await site.lands(moving[0], "nothing lands after the change")
        site.connect(moving[1], site.uplinks[moving[1]], IMPATIENT)
        await site.lands(moving[1], "nothing lands of the gateway that was offline")
        await site.drain()
        print(f"{await site.check()} events, 0 lost, 0 duplicate; {await asyncio.to_thread(site.check_order, 2)} streams moved")
        assert await site.check_ledger() >= len(moving)
    finally:
        await site.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("K28")
async def test_8_shards_become_12_with_kills_of_bridges_and_of_the_command(kafka, tenant, folder):
    """K28: two bridges, a gateway for each of 8 shards and of 12, half of them cut off through the change.

    Those come back with the tail of an old stream and a newer one beside it (`newest first`): both are landed by the new owner.
    """
    site = GrowingLine(tenant, folder, kafka.bootstrap, shards=8)
    names = ("bridge-1", "bridge-2")
    try:
        await asyncio.gather(*(start_child(site.bridge(name)) for name in names))
        await site.shared(*names)
        gateways = sorted({site.gateway_of(shard) for shard in range(8)})
        site.shards = 12
        gateways = sorted({*gateways, *(site.gateway_of(shard) for shard in range(12))})
        site.shards = 8
        for name in gateways:
            site.open_gateway(name, *names, backoff=IMPATIENT, backfill={"telemetry": "newest"}, backfill_events=100)
        await asyncio.gather(*(site.lands(name, "nothing lands") for name in gateways))
        offline = gateways[::2]
        for name in offline:
            await site.disconnect(name)
        await kill_child(site.bridges["bridge-2"])  # its transactions are open
        site.shards = 12
        began = datetime.now(UTC)
        print(await site.reshard(*POINTS))
        await site.ended("bridge-1")
        await asyncio.gather(*(start_child(site.bridge(name)) for name in names))
        await asyncio.gather(*(site.caught_up(name) for name in gateways if name not in offline))
        print(
            f"served again after {(datetime.now(UTC) - began).total_seconds():.1f} s, with {len(POINTS)} kills of the command"
        )
        await kill_child(site.bridges["bridge-1"])
        for name in offline:
            site.connect(name, site.uplinks[name], IMPATIENT)
        await start_child(site.bridge("bridge-1"))
        await asyncio.gather(*map(site.caught_up, gateways))
        await site.drain()
        print(f"{await site.check()} events, 0 lost, 0 duplicate; {await asyncio.to_thread(site.check_order, 8)} streams moved")
        streams = await site.check_ledger()
        assert streams >= len(gateways) + len(offline)  # the newer streams of those that were offline
    finally:
        await site.close()
