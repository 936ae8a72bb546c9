"""Writes `state.tar.xz`: tables, checkpoint and Kafka's log folder as a flow of an earlier version left them.

    python tests/flows/former/write.py PROGRAM

`PROGRAM`: the command `fogline` of that version, in an environment of its own. The tables and the checkpoint are written by
`PROGRAM flow run --once` alone; the broker and the records (whose format is a contract, `tests/contracts`) come from here.

Sequences 1 to 3 are in batch 0, which is finished. Sequences 4 and 5 are in batch 1. Its note in `checkpoint/commits` is
removed, as after a kill of the driver between its last commit and Spark's note. Sequence 6 is in Kafka only. Sequence 3
cannot be parsed. Kafka's folder is part of the archive because the log of `events` holds the ids of the topics.
"""

import argparse
import subprocess
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from fogline.events.event import Event, Lane, TimeQuality
from fogline_cloud.kafka import records, topics
from fogline_lab.kafka_broker import KafkaBroker

TENANT = "former"
STREAM = "00000000000000aa"
ARCHIVE = Path(__file__).with_name("state.tar.xz")
FEW = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
"""Broker settings that keep the archive small."""


def event(sequence: int) -> Event:
    """Return the event with this sequence of the one stream."""
    return Event(
        id=f"ID-{sequence}",
        tenant=TENANT,
        device="d-1",
        type="telemetry",
        subject="air",
        recordedtime=f"2026-01-02T03:04:{sequence:02d}.000006Z",
        content_type="application/json",
        data=b"{" if sequence == 3 else b'{"t": %d.5, "n": %d}' % (sequence, sequence),
        gateway="gw-1",
        stream=STREAM,
        sequence=sequence,
        lane=Lane.TELEMETRY,
        timequality=TimeQuality.SYNCED,
        dedup="strong",
        adapter="mqtt",
    )


def produce(bootstrap: str, *sequences: int) -> None:
    """Write events in one Kafka transaction, as the bridge does."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"write-{sequences[0]}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for sequence in sequences:
        record = records.record_of(event(sequence))
        producer.produce(topics.telemetry(TENANT), record.value, record.key, partition=0, headers=record.headers)
    producer.commit_transaction(60)


def keep_for_ever(bootstrap: str) -> None:
    """Let no record expire: the archive is read years later."""
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    wanted = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]) for name in topics.raw_topics(TENANT)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs(wanted).values():
        future.result(60)


def main() -> None:
    """Write the archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the command `fogline` of the earlier version")
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "cloud.toml"
        with KafkaBroker(folder / "kafka", properties=FEW) as broker:
            config.write_text(
                f'tenant = "{TENANT}"\nshards = 1\n[kafka]\n"bootstrap.servers" = "{broker.bootstrap}"\n'
                '[flow]\ntables = "tables"\ncheckpoint = "checkpoint"\nspark = { "spark.driver.memory" = "1g" }\n'
            )
            create = [program, "topics", "create", "--config", str(config)]
            flow = [program, "flow", "run", "--once", "--config", str(config)]
            subprocess.run(create, check=True)
            keep_for_ever(broker.bootstrap)
            for sequences in ((1, 2, 3), (4, 5)):
                produce(broker.bootstrap, *sequences)
                subprocess.run(flow, check=True)
            produce(broker.bootstrap, 6)
        for each in (folder / "checkpoint" / "commits").glob("*1*"):
            each.unlink()
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for each in ("tables", "checkpoint", "kafka/log"):
                archive.add(folder / each, each)


if __name__ == "__main__":
    main()
