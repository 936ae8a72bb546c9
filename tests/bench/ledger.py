"""`fogline ledger verify` over tables with 100 million rows each, and once more after a hundred thousand were added.

Kafka has deleted the records of the rows, as its retention does.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from flow import SHARDS, create_tables, settings
from processes import BIN, Bench, Failed

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import MEASURED
from fogline_cloud.kafka import topics

ROWS = 2500
"""Rows of each table, as a multiple of the events of the gateway's row: 100 million."""
FILE_ROWS = 1_000_000
DAYS = 30
STREAMS = 1000
IN_TURN = 100
"""Events of one stream that stand together, as batches bring them."""
ROUND = STREAMS * IN_TURN
OFFSETS = 100_000
"""Records that each partition had. The rows' offsets repeat, because Kafka cannot have so many so soon."""
LIMIT_S = 900
_VALUES = pa.list_(pa.struct([("ordinal", pa.int32())]))


def measure(bench: Bench) -> dict[str, float]:
    """Make the tables, verify all rows, add some, and verify again."""
    tenant = f"ledger{bench.number}"
    cloud = settings(bench, tenant, 5000, 0, name="ledger")
    create_tables(bench, cloud)
    delete_records(bench, topics.telemetry(tenant))
    rows = -(-ROWS * bench.events // ROUND) * ROUND
    began = time.perf_counter()
    fill(bench.folder / "flow-ledger" / "tables", tenant, 0, rows)
    loaded = time.perf_counter() - began
    first_s, peak_mb = verify(bench, cloud, 2 * rows)
    fill(bench.folder / "flow-ledger" / "tables", tenant, rows, ROUND)
    again_s, _ = verify(bench, cloud, 2 * ROUND)
    return {"ledger.load": loaded, "ledger.first": first_s, "ledger.peak": peak_mb, "ledger.again": again_s}


def verify(bench: Bench, cloud: Path, rows: int) -> tuple[float, float]:
    """Return the seconds and the peak of memory in MB of a run that has to read so many rows, and to find nothing."""
    began = time.perf_counter()
    with bench.metered("ledger", BIN / "fogline", "ledger", "verify", "--json", "--config", cloud) as metered:
        found = metered.child.next_line(LIMIT_S)
        status = metered.child.wait()
        seconds = time.perf_counter() - began
        usage = metered.end()
    if status or found["read"]["tables"]["rows"] != rows:
        raise Failed(f"fogline ledger verify: exit status {status}, {found['read']['tables']['rows']:,} of {rows:,} rows read")
    return seconds, usage.peak_rss_bytes / 1e6


def delete_records(bench: Bench, topic: str) -> None:
    """Send records to each partition and have Kafka delete them."""
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 50})
    for number in range(OFFSETS * SHARDS):
        while True:
            try:
                producer.produce(topic, b"", partition=number % SHARDS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(LIMIT_S):
        raise Failed("Kafka did not take the records")
    admin = AdminClient({"bootstrap.servers": bench.bootstrap})
    ends = [TopicPartition(topic, shard, OFFSET_END) for shard in range(SHARDS)]
    for each in admin.delete_records(ends).values():
        each.result(LIMIT_S)


def fill(tables: Path, tenant: str, after: int, rows: int) -> None:
    """Append rows of another flow to both tables, behind the `after` rows that are there."""
    batch, owner = MicroBatch("made", f"run-{after}", 0), Owner(tenant, "made", f"run-{after}", after + 1)
    for name in ("events", "readings"):
        table = TableFolder(str(tables / name))
        log = DeltaLog(name, table)
        log.take_over(owner, {})
        with FileWriter(table, MEASURED[name]) as writer:
            for each in made_rows(name, tenant, batch, after, rows):
                writer.add(each)
                files = writer.close()
        log.append(files, batch, owner)


def made_rows(name: str, tenant: str, batch: MicroBatch, after: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file, those of streams in turn. Columns that the ledger does not read are left out."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    gateways = pa.array([f"gw-{number}" for number in range(STREAMS)])
    streams = pa.array([f"{number:016x}" for number in range(STREAMS)])
    for begin in range(after, after + rows, FILE_ROWS):
        row = np.arange(begin, min(begin + FILE_ROWS, after + rows))
        stream = pa.array(row // IN_TURN % STREAMS)
        sequence = pa.array(row // ROUND * IN_TURN + row % IN_TURN + 1)
        zeros = pa.array(np.zeros(len(row), np.int32))
        same = partial(pa.repeat, size=len(row))
        day = today - timedelta(days=1 + begin // FILE_ROWS % DAYS)
        columns = {
            "ingested": same(pa.scalar(day, pa.timestamp("us", "UTC"))),
            "run": same(batch.run),
            "batch": same(pa.scalar(0, pa.int64())),
            "gateway": gateways.take(stream),
            "stream": streams.take(stream),
            "sequence": sequence,
        }
        if name == "readings":
            columns |= {"ordinal": zeros, "device": gateways.take(stream), "time": columns["ingested"]}
        else:
            texts = {"tenant": tenant, "flow": "made", "topic": topics.telemetry(tenant), "lane": "telemetry", "outcome": "ok"}
            ends = pa.array(np.arange(len(row) + 1, dtype=np.int32))
            columns |= {each: same(value) for each, value in texts.items()}
            columns |= {
                "recordedtime": columns["ingested"],
                "partition": pa.array((row // IN_TURN % SHARDS).astype(np.int32)),
                "offset": pa.array(row % OFFSETS),
                "first_sequence": sequence,
                "readings": pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([zeros], ["ordinal"])).cast(_VALUES),
            }
        yield pa.RecordBatch.from_pydict(columns)
