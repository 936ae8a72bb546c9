"""Maintenance of yesterday, in which a flow made a commit every five seconds at 200 events a second, each with two readings."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dedup import made_rows, maintain
from deltalake import DeltaTable
from flow import create_tables, settings
from processes import Bench, Failed

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import MEASURED

COMMITS_A_DAY = 24 * 3600 // 5
EVENTS_A_COMMIT = 1000
METRICS = ("temperature", "humidity")
TABLES = ("events", "readings")


def measure(bench: Bench) -> dict[str, float]:
    """Make the day (a part of it, with fewer `--events`), maintain it, and count the files."""
    tenant = f"day{bench.number}"
    cloud = settings(bench, tenant, 5000, 0, name="day")
    create_tables(bench, cloud)
    tables = bench.folder / "flow-day" / "tables"
    fill(tables, tenant, max(COMMITS_A_DAY * bench.events // 40_000, 1))
    before, rows = most_files(tables), row_counts(tables)
    seconds = maintain(bench, cloud)
    if row_counts(tables) != rows:
        raise Failed(f"{rows} rows became {row_counts(tables)}")
    return {"closed_day.before": before, "closed_day.after": most_files(tables), "closed_day.seconds": seconds}


def fill(tables: Path, tenant: str, commits: int) -> None:
    """Write the files of so many commits to both tables."""
    batch, owner = MicroBatch("made", "run-1", 0), Owner(tenant, "made", "run-1", 1)
    logs = {name: DeltaLog(name, TableFolder(str(tables / name))) for name in TABLES}
    writers = {name: FileWriter(logs[name].folder, MEASURED[name]) for name in TABLES}
    for rows in made_rows(tenant, batch, commits * EVENTS_A_COMMIT, commits, 1):
        for name, some in (("events", rows), ("readings", readings_of(rows))):
            writers[name].add(some)
            writers[name].close()  # one file for each commit
    for name in TABLES:
        logs[name].take_over(owner, {})
        logs[name].append(writers[name].close(), batch, owner)


def readings_of(events: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of `readings` with values that compress as badly as those of sensors."""
    count = len(events) * len(METRICS)
    event = pa.array(np.repeat(np.arange(len(events)), len(METRICS)))
    ordinal = pa.array(np.tile(np.arange(len(METRICS), dtype=np.int32), len(events)))
    shared = ("id", "source", "device", "ingested", "gateway", "stream", "sequence", "flow", "run", "batch")
    return pa.RecordBatch.from_pydict(
        {
            **{name: events.column(name).take(event) for name in shared},
            "time": events.column("recordedtime").take(event),
            "ordinal": ordinal,
            "metric": pa.array(METRICS).take(ordinal),
            "value": pa.array(np.random.default_rng(1).normal(20, 3, count).round(2)),
        }
    )


def most_files(tables: Path) -> int:
    """Return the number of files of the day in the table that has most."""
    return max(max(Counter(_files(tables / name)["partition.day"].to_pylist()).values()) for name in TABLES)


def row_counts(tables: Path) -> list[int]:
    """Return the number of rows of each table, as the statistics of the files say."""
    return [pc.sum(_files(tables / name)["num_records"]).as_py() for name in TABLES]


def _files(table: Path) -> pa.Table:
    return pa.table(DeltaTable(table).get_add_actions(flatten=True))
