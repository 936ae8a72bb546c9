"""Spark keeps hourly windows of a table, beside one plain aggregate over all rows of the same table.

    python tests/bench/windows_job.py CLOUD_TOML FOLDER ROWS

Prints a JSON line when the table is made, and one for each step with its seconds.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.frames import readings, session
from fogline_cloud.frames.windows import windows
from fogline_lab.flow_table import FlowTable, usual_row

DAYS = 100
DEVICES = 50
COMMITS = 20
LATE = 1000
"""Rows of a late batch."""
MEANS = windows(["device", "metric"], "1 hour", {"mean": "avg(value)", "n": "count(*)"})
DAY_US = 86_400_000_000
NOON_US = int(datetime(2026, 4, 20, 12, tzinfo=UTC).timestamp()) * 1_000_000


def main() -> None:
    """Make the table, then do each step."""
    config, folder, rows = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    table = FlowTable("readings", TableFolder(str(folder / "tables" / "readings")))
    for number in range(COMMITS):
        table.append_rows(made(table, rows // COMMITS, number))
    spark = session(config)
    print(json.dumps({"rows": readings(spark, config).count()}), flush=True)

    def plain() -> None:
        MEANS.of(readings(spark, config)).write.format("delta").mode("overwrite").save(str(folder / "plain"))

    def keep() -> None:
        MEANS.keep(spark, config, into=str(folder / "kept"), once=True)

    def late(days: int) -> None:
        table.append_rows(made(table, LATE, COMMITS + days, days))

    plain()  # once before, because a JVM is cold
    report("plain", plain)
    report("first", keep)
    report("nothing", keep)
    for name, days in (("late", DAYS), ("live", 1)):
        late(days)
        report(name, keep)
    plain()
    same = not difference(spark.read.format("delta"), folder)
    print(json.dumps({"step": "end", "equal": same}), flush=True)
    spark.stop()


def report(step: str, act: Callable[[], None]) -> None:
    """Do a step, and print its seconds."""
    began = time.perf_counter()
    act()
    print(json.dumps({"step": step, "seconds": time.perf_counter() - began}), flush=True)


def difference(reader: object, folder: Path) -> int:
    """Return the number of windows that only one of the two tables has."""
    one, other = (reader.load(str(folder / name)).drop("mean") for name in ("plain", "kept"))  # type: ignore[attr-defined]  # PySpark's
    return int(one.exceptAll(other).count() + other.exceptAll(one).count())


def made(table: FlowTable, count: int, number: int, late_days: int = 0) -> pa.RecordBatch:
    """Return readings of one commit: one of `COMMITS` that follow each other, or late ones of the last days."""
    random = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    usual = pa.RecordBatch.from_pylist([usual_row(0)], table.schema).to_pydict()
    columns = {name: pa.repeat(pa.scalar(values[0], table.schema.field(name).type), count) for name, values in usual.items()}
    columns["id"] = pa.array([f"{each:016x}.{number:08x}" for each in ids])
    columns["device"] = pa.array([f"d-{each}" for each in random.integers(0, DEVICES, count)])
    columns["value"] = pa.array(random.normal(20, 5, count).round(2))
    columns["sequence"] = pa.array(ids)
    span = DAY_US * (late_days or DAYS // COMMITS)
    first = NOON_US - span if late_days else NOON_US - DAY_US * DAYS + number * span
    columns["time"] = pa.array(first + random.integers(0, span, count), pa.timestamp("us", "UTC"))
    columns["ingested"] = pa.array(np.full(count, NOON_US), pa.timestamp("us", "UTC")) if late_days else columns["time"]
    return pa.RecordBatch.from_pydict(columns, schema=table.schema)


if __name__ == "__main__":
    main()
