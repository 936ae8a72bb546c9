"""K5: a bridge dies within its transactions, and nobody takes its shards: readers of committed records soon go on."""

import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chaos.landed_events import landed, provided
from chaos.zombie import POINTS, stream_of
from fogline.events.event import Lane
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import TRANSACTION_TIMEOUT_MS, end_offset
from fogline_cloud.kafka.records import record_of
from fogline_lab.events import make_event
from fogline_lab.supervisor import ChildProcess, kill_child, start_child
from fogline_lab.waiting import until

SWEEP_S = 10.0
"""How often a broker looks for transactions to abort (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
SHARDS = len(POINTS)
LATER = 99


def write_later(bootstrap, tenant):
    """Somebody else commits a record to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"later-{tenant}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for shard in range(SHARDS):
        record = record_of(make_event(LATER, tenant=tenant, stream=stream_of(shard)))
        topic = topics.of_lane(Lane.TELEMETRY, tenant)
        producer.produce(topic, record.value, record.key, partition=shard, headers=record.headers)
    producer.commit_transaction(60)


@pytest.mark.slow
@pytest.mark.fault("K5")
async def test_readers_go_on_within_the_time_out_of_a_dead_bridges_transaction(kafka, tenant, folder):
    clients = provided(kafka.bootstrap, tenant, SHARDS)
    script = str(Path(__file__).with_name("zombie.py"))
    bridge = ChildProcess("zombie", [sys.executable, script, kafka.bootstrap, tenant, str(SHARDS)], folder / "bridge.log")
    try:
        assert await start_child(bridge) == {"open": SHARDS}
    finally:
        await kill_child(bridge)
    write_later(kafka.bootstrap, tenant)
    began, topic, reader = time.monotonic(), topics.of_lane(Lane.TELEMETRY, tenant), clients.reader()
    held = [shard for shard in range(SHARDS) if end_offset(reader, topic, shard)[1] == 0]
    assert len(held) >= 2, "no transaction was open at the broker"

    async def seen() -> bool:
        return all(end_offset(reader, topic, shard)[1] for shard in range(SHARDS))

    await until(seen, "readers are held up", TRANSACTION_TIMEOUT_MS / 1000 + SWEEP_S + 60)
    print(f"{len(held)} of {SHARDS} partitions were held, for {time.monotonic() - began:.1f} s")
    assert set(landed(clients, tenant, SHARDS)) == {(stream_of(shard), LATER) for shard in range(SHARDS)}
