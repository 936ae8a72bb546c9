"""Micro-batches of events with own ids, which the flow looks up in all of `events`: with 1 and with 100 million rows."""

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from flow import settings
from processes import BIN, Bench, Failed

from fogline.events.event import Event, Lane, TimeQuality, rfc3339
from fogline.events.identity import Dedup, semantic_id
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import MEASURED
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.records import record_of
from fogline_lab.supervisor import run_to_end

FEW, MANY = 25, 2500
"""Rows of the table, as a multiple of the events of the gateway's row: 1 and 100 million."""
DAYS = 30
FILE_ROWS = 1_000_000
BATCHES = 9
BATCH_EVENTS = 1000
LIMIT_S = 600
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", np.uint8)
_ID_CHARS = 26
_DEVICES = 1000
_BODY = b'{"temperature": 21.5}'


def measure(bench: Bench) -> dict[str, float]:
    """A table with few rows, then one with many, by the same flow."""
    tenant = f"dedup{bench.number}"
    cloud = settings(bench, tenant, BATCH_EVENTS * 5, 0, name="dedup")
    send(bench, tenant, 0, 2)
    batches(bench, cloud)  # creates the tables
    table = TableFolder(str(bench.folder / "flow-dedup" / "tables" / "events"))
    found = {}
    rows = 0
    for number, (name, times) in enumerate((("few", FEW), ("many", MANY)), 1):
        found[f"dedup.load_{name}"] = fill(table, tenant, times * bench.events - rows, number)
        rows = times * bench.events
        found[f"dedup.index_{name}"] = maintain(bench, cloud)
        send(bench, tenant, number, BATCHES)
        found[f"dedup.{name}"] = statistics.median(batches(bench, cloud)[2:])
    return {**found, "dedup.ratio": found["dedup.many"] / found["dedup.few"]}


def send(bench: Bench, tenant: str, number: int, count: int) -> None:
    """Send micro-batches of a client's events, each with an id that no other event has."""
    producer = Producer({"bootstrap.servers": bench.bootstrap})
    for event in range(count * BATCH_EVENTS):
        record = record_of(event_of(tenant, f"{number}-{event}"))
        producer.produce(topics.telemetry(tenant), record.value, record.key, 0, headers=record.headers)
        producer.poll(0)
    if producer.flush(LIMIT_S):
        raise Failed("Kafka did not take the events")


def event_of(tenant: str, own_id: str) -> Event:
    """Return an event as the bridge makes it of an AMQP client's message with an id."""
    return Event(
        id=semantic_id(1, tenant, "client", "telemetry", b"", own_id.encode()),
        tenant=tenant,
        device="client",
        type="telemetry",
        subject="telemetry",
        recordedtime=rfc3339(time.time_ns()),
        content_type="application/json",
        data=_BODY,
        gateway="",
        stream="",
        sequence=0,
        lane=Lane.TELEMETRY,
        timequality=TimeQuality.SYNCED,
        dedup=Dedup.STRONG,
        adapter="amqp",
    )


def batches(bench: Bench, cloud: Path) -> list[float]:
    """Run the flow to the end of the records. Returns the seconds of each micro-batch."""
    command = BIN / "fogline", "flow", "run", "--once", "--json", "--config", cloud
    with bench.child("flow-dedup", *command) as child:
        found = [line["seconds"] for line in child.lines(LIMIT_S) if line.get("events")]
        if status := child.wait():
            raise Failed(f"fogline flow run: exit status {status}: it {child.end}")
    return found


def maintain(bench: Bench, cloud: Path) -> float:
    """Write the key files. Returns the seconds."""
    log, began = bench.folder / "maintain.log", time.perf_counter()
    if run_to_end([BIN / "fogline", "table", "maintain", "--config", cloud], log)[0]:
        raise Failed(f"fogline table maintain: {log.read_text('utf-8').strip()}")
    return time.perf_counter() - began


def fill(table: TableFolder, tenant: str, rows: int, number: int) -> float:
    """Append rows of other flows, in at least one file for each of the last days. Returns the seconds."""
    began = time.perf_counter()
    files = max(DAYS, -(-rows // FILE_ROWS))
    batch, owner = MicroBatch("made", f"run-{number}", 0), Owner(tenant, "made", f"run-{number}", number)
    log = DeltaLog("events", table)
    log.take_over(owner, {})
    with FileWriter(table, MEASURED["events"]) as writer:
        for each in made_rows(tenant, batch, rows, files):
            writer.add(each)
            made = writer.close()
    log.append(made, batch, owner)
    return time.perf_counter() - began


def made_rows(tenant: str, batch: MicroBatch, rows: int, files: int, days: int = DAYS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file, of one of the last days in turn. Columns that are null in all of them are left out."""
    random = np.random.default_rng(batch_seed := int(batch.run.rpartition("-")[2]))
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for file in range(files):
        count = rows * (file + 1) // files - rows * file // files
        time_of_file = pa.repeat(pa.scalar(today - timedelta(days=1 + file % days), pa.timestamp("us", "UTC")), count)
        devices = pa.array([f"{tenant}-{device}" for device in range(_DEVICES)])
        device = devices.take(pa.array(random.integers(0, _DEVICES, count)))
        chars = _ALPHABET[random.integers(0, len(_ALPHABET), count * _ID_CHARS, dtype=np.uint8)]
        ends = pa.array(np.arange(count + 1, dtype=np.int32) * _ID_CHARS)
        same = {"topic": topics.telemetry(tenant), "tenant": f"made-{tenant}", "flow": "made", "run": batch.run}
        same |= {"stream": f"{batch_seed:016x}", "outcome": "ok", "adapter": "mqtt", "dedup": "strong", "gateway": "made"}
        numbers = pa.array(np.arange(count, dtype=np.int64))
        yield pa.RecordBatch.from_pydict(
            {
                **{name: pa.repeat(value, count) for name, value in same.items()},
                "id": pa.StringArray.from_buffers(count, ends.buffers()[1], pa.py_buffer(chars)),
                "source": device,
                "device": device,
                "ingested": time_of_file,
                "recordedtime": time_of_file,
                "batch": pa.repeat(pa.scalar(0, pa.int64()), count),
                "partition": pa.repeat(pa.scalar(0, pa.int32()), count),
                "offset": numbers,
                "sequence": numbers,
                "replayed": pa.repeat(False, count),
            }
        )
