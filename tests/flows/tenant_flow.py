"""A tenant with its topics, and a flow over them."""

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fogline.events.event import Event
from fogline_cloud.flows import job
from fogline_cloud.flows.driver.commit import Progress
from fogline_cloud.flows.driver.metrics import FlowMetrics
from fogline_cloud.flows.driver.raw_sink import RawProgress
from fogline_cloud.kafka import records, topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings

SHARDS = 2
_numbers = itertools.count(1)


class Flow:
    """A tenant with its topics, and a flow over them that runs as far as there are records."""

    def __init__(self, spark: SparkSession, settings: CloudSettings) -> None:
        self.spark = spark
        self.settings = settings
        self.tables = Path(settings.flow.tables)
        self.checkpoint = Path(settings.flow.checkpoint)

    def check(self) -> None:
        """Do the checks before the first start."""
        job.preflight(self.settings)

    def make_topics(self) -> None:
        """Create the topics as `fogline topics create` does."""
        admin = AdminClient(dict(self.settings.kafka))
        wanted = [NewTopic(t.name, t.partitions, 1, config=t.config) for t in topics.all_topics(self.settings.tenant, SHARDS)]
        for future in admin.create_topics(wanted).values():
            future.result(60)
        self.check()

    def hurry(self) -> None:
        """End a parser that never returns after 0.3 s of CPU time. A parser that waits instead has 6 s by the clock."""
        self.settings = msgspec.structs.replace(
            self.settings, flow=msgspec.structs.replace(self.settings.flow, parse_limit_ms=300)
        )

    def land(self, events: Sequence[Event | records.KafkaRecord], *, commit: bool = True, partition: int = 0) -> None:
        """Write in one Kafka transaction, as the bridge does. A bare record goes to the telemetry topic."""
        tenant = self.settings.tenant
        producer = Producer({**self.settings.kafka, "transactional.id": f"land-{next(_numbers)}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for each in events:
            topic = topics.of_lane(each.lane, tenant) if isinstance(each, Event) else topics.telemetry(tenant)
            record = records.record_of(each) if isinstance(each, Event) else each
            producer.produce(topic, record.value, record.key, partition=partition, headers=record.headers)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    def run(
        self,
        *,
        once: bool = True,
        stop: threading.Event | None = None,
        on_batch: Callable[[], None] = lambda: None,
        accept_new_topics: bool = False,
        metrics: FlowMetrics | None = None,
        on_raw: Callable[[], None] = lambda: None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> list[Progress]:
        """Run it, by default once, over what is there. Returns the batches."""
        batches: list[Progress] = []
        watched = metrics or FlowMetrics(KafkaClients(self.settings.kafka))

        def done(progress: Progress) -> None:
            batches.append(progress)
            on_batch()
            watched.on_progress(progress)

        def raw_done(progress: RawProgress) -> None:
            on_raw()
            watched.on_raw_progress(progress)

        job.run_flow(
            self.spark,
            self.settings,
            on_ready=on_ready,
            parsing=job.QueryCallbacks(on_progress=done, on_offsets=watched.on_offsets),
            raw=job.QueryCallbacks(on_progress=raw_done, on_offsets=watched.on_raw_offsets),
            stop=stop or threading.Event(),
            once=once,
            accept_new_topics=accept_new_topics,
        )
        return batches

    def rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows, read without Spark."""
        found = DeltaTable(str(self.tables / table)).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: (row["stream"] or "", row["sequence"] or 0, row.get("ordinal", 0)))

    def raw_rows(self) -> list[dict[str, Any]]:
        """The rows of table `raw`, read without Spark."""
        table = self.tables / "raw"
        found = DeltaTable(table).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(str(table)) else []
        return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def derived(self, topic: str) -> list[tuple[bytes | None, bytes, dict[str, bytes]]]:
        """Key, value and headers of everything in a derived topic."""
        group = {"group.id": f"look-{next(_numbers)}", "enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = Consumer({**self.settings.kafka, **group})
        found = []
        try:
            for partition in range(SHARDS):
                end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)[1]
                consumer.assign([TopicPartition(topic, partition, 0)])
                for _ in range(end):
                    message = consumer.poll(60)
                    assert message is not None, f"{topic} {partition} ends before its watermark {end}"
                    assert message.error() is None, message.error()
                    found.append((message.key(), message.value(), dict(message.headers() or [])))
        finally:
            consumer.close()
        return found

    def derived_json(self, topic: str) -> list[dict[str, Any]]:
        """The values of a derived topic, read as JSON."""
        return [json.loads(value) for _, value, _ in self.derived(topic)]


def canonical_readings(flow: Flow) -> list[dict[str, Any]]:
    """Return each reading of the canonical topic, with the members of its record."""
    records = flow.derived_json(topics.canonical(flow.settings.tenant))
    return [{**record, **reading} for record in records for reading in record["readings"]]
