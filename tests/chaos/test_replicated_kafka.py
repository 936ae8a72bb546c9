"""K1: a Kafka cluster of three nodes under load. Its nodes are killed one after another."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import KafkaException

from fogline.amqp.backoff import Backoff
from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import TRANSACTION_TIMEOUT_MS
from fogline_cloud.kafka.hanging_transactions import find_hanging
from fogline_lab.kafka_cluster import KafkaCluster
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import start_child
from fogline_lab.waiting import until

KILLS = 20
LIMIT_S = 90.0
SWEEP_S = 10.0
"""How often a broker looks for transactions to abort (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
UNSEEN = "Kafka forgot the transaction's marker"
REPAIRED = "the broker holds a transaction without a marker"
"""Texts of the bridge's log: a marker did not come in time; the next owner committed a transaction without one."""


@asynccontextmanager
async def loaded_site(tenant, folder):
    """One bridge on a cluster, and a gateway under load for each of its shards."""
    with KafkaCluster(folder / "kafka") as cluster:
        cluster.wait_in_sync()
        site = ProcessLine(tenant, folder, cluster.bootstrap, replication=3)
        try:
            await start_child(site.bridge("bridge-1"))
            await site.shared("bridge-1")
            for shard in range(site.shards):
                site.open_gateway(site.gateway_of(shard), "bridge-1", backoff=Backoff(base_s=0.05, cap_s=1.0))
            await all_land(site, "nothing lands")
            yield site, cluster
        finally:
            await site.close()


async def all_land(site, what):
    await asyncio.gather(*(site.lands(name, what, LIMIT_S) for name in site.outboxes))


async def judge(site, what):
    """Check that each event landed once, and that readers of committed records see every partition to its end."""
    await site.drain()
    count = await site.check()
    await asyncio.to_thread(site.bridges["bridge-1"].stop)  # it has no transaction open then
    names = [
        *topics.raw_topics(site.tenant),
        *(each(site.tenant) for each in (topics.checkpoint, topics.commands, topics.audit)),
    ]
    partitions = [(name, shard) for name in names for shard in range(site.shards)]
    behind = await asyncio.to_thread(find_hanging, site.clients, partitions, TRANSACTION_TIMEOUT_MS / 1000 + SWEEP_S + 60)
    assert behind == [], "the last stable offset stays behind"
    log = site.bridges["bridge-1"].log.read_text()
    print(f"{what}: {count} events, 0 lost, 0 duplicate; markers: {log.count(UNSEEN)} late, {log.count(REPAIRED)} missing")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("K1")
async def test_nodes_of_a_replicated_kafka_are_killed_one_after_another(folder, tenant):
    """Coordinators of the shards' transactions, and each third time the leader of a raw partition; never two at once."""
    async with loaded_site(tenant, folder) as (site, cluster):
        raw = topics.of_lane(Lane.TELEMETRY, tenant)
        for number in range(KILLS):
            await asyncio.to_thread(cluster.wait_in_sync)
            shard = number % site.shards
            if number % 3 == 2:
                node = cluster.leaders(raw)[shard]
            else:
                node = cluster.coordinator(topics.transactional_id(tenant, shard))
            cluster.brokers[node].kill()
            if number % 2:  # otherwise it may be back before another node leads
                await until(lambda: others_lead(cluster, raw, node), "no other node leads")  # noqa: B023 - awaited at once
            cluster.brokers[node].launch()
            await asyncio.to_thread(cluster.brokers[node].wait)
            await all_land(site, f"nothing lands after kill {number}")
        await judge(site, f"{KILLS} kills of one of three nodes")


def others_lead(cluster, topic, node):
    try:
        return not {node, -1} & set(cluster.leaders(topic).values())
    except KafkaException:
        return False
