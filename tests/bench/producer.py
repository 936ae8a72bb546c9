"""A bare idempotent producer: the bridge's records, made before the clock starts, a delivery report for each.

    python tests/bench/producer.py BOOTSTRAP TENANT SHARDS EVENTS

Prints one JSON line when it is ready, waits for a line on stdin, produces, and prints the seconds until all reports are
there, and the CPU seconds that it used.
"""

import json
import sys
import time

from confluent_kafka import Producer
from gateways import names
from records import BATCH, events_of

from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import COMPRESSION
from fogline_cloud.kafka.records import record_of


def main() -> None:
    """Produce everything, shard after shard in turns of a batch."""
    bootstrap, tenant, shards, events = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    each = events // shards
    by_shard = [events_of(tenant, name, number, each) for number, name in enumerate(names(shards))]
    records = [
        (shard, record_of(event, bytes(16) if event.sequence % BATCH == 0 else None))
        for first in range(0, each, BATCH)
        for shard, mine in enumerate(by_shard)
        for event in mine[first : first + BATCH]
    ]
    del by_shard
    settings = {"enable.idempotence": True, "linger.ms": 5, **COMPRESSION, "socket.nagle.disable": True}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    topic = topics.telemetry(tenant)
    producer.list_topics(topic, timeout=30)
    print(json.dumps({"ready": len(records)}), flush=True)
    sys.stdin.readline()
    reported = produce(producer, topic, records)
    print(json.dumps(reported), flush=True)


def produce(producer: Producer, topic: str, records: list) -> dict[str, float]:
    """Everything, until every report is there."""
    delivered = 0

    def report(error, _message) -> None:
        nonlocal delivered
        if error is not None:
            raise SystemExit(f"a record was not delivered: {error}")
        delivered += 1

    began, cpu = time.perf_counter(), time.process_time()
    for shard, record in records:
        while True:
            try:
                producer.produce(topic, record.value, record.key, shard, report, None, 0, record.headers)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(60)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    if delivered != len(records):
        raise SystemExit(f"{delivered} of {len(records)} records were delivered")
    return {"seconds": seconds, "cpu_s": cpu}


if __name__ == "__main__":
    main()
