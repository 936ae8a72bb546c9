"""A backlog of table `readings` into databases: by a sink, by Spark's JDBC, and by a bare ingestion from memory."""

import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from processes import BIN, Bench, Failed, cpu_s

from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import FlowTable, usual_row
from fogline_lab.postgres import Postgres

ROWS = 25
"""Rows, as a multiple of the events of the gateway's row: a million."""
COMMITS = 40
LIMIT_S = 600.0


def measure(bench: Bench) -> dict[str, float]:
    """Each database in turn; PostgreSQL on TCP, as Spark needs it."""
    folder = bench.subfolder("sink")
    rows = ROWS * bench.events
    table = FlowTable("readings", TableFolder(str(folder / "tables" / "readings")))
    with Postgres(tcp=True) as server:
        url = f"postgresql://fog@127.0.0.1:{server.port}/fog"
        config = folder / "cloud.toml"
        databases = {"postgresql": url, "sqlite": f"sqlite:///{folder}/x.db", "duckdb": f"duckdb:///{folder}/x.duckdb"}
        sinks = "".join(f'[sinks.{name}]\nurl = "{each}"\n' for name, each in databases.items())
        config.write_text(f'tenant = "t"\n[flow]\ntables = "tables"\n{sinks}')
        for name in databases:  # they have the empty table, and then follow it
            follow(bench, config, name, 0)
        for number in range(COMMITS):
            table.append_rows(made_rows(table, rows // COMMITS, number))
        found = {name: follow(bench, config, name, rows) for name in databases}
        spark = by_spark(bench, table, url, rows)
        bare = bare_ingestion(table, url, rows)
        table.replace_rows()
        replay, _ = follow(bench, config, "postgresql", rows)
    sink, sink_cpu = found["postgresql"]
    return {
        "sink.rows": sink,
        "sink.cpu": sink_cpu,
        "sink.bare": bare,
        "sink.spark": spark[0],
        "sink.spark_cpu": spark[1],
        "sink.ratio": sink / spark[0],
        "sink.sqlite": found["sqlite"][0],
        "sink.duckdb": found["duckdb"][0],
        "sink.replay": replay,
    }


def made_rows(table: FlowTable, count: int, number: int) -> pa.RecordBatch:
    """Return readings of one commit, with values that compress as badly as those of sensors."""
    random = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    usual = pa.RecordBatch.from_pylist([usual_row(0)], table.schema).to_pydict()
    columns = {name: pa.repeat(pa.scalar(values[0], table.schema.field(name).type), count) for name, values in usual.items()}
    columns["id"] = pa.array([f"{each:016x}.{each:08x}" for each in random.integers(0, 2**60, count)])
    columns["device"] = pa.array([f"d-{each % 500}" for each in ids])
    columns["value"] = pa.array(random.normal(20, 5, count).round(2))
    columns["sequence"] = pa.array(ids)
    moment = usual["ingested"][0] + timedelta(seconds=number)
    columns["ingested"] = pa.repeat(pa.scalar(moment, table.schema.field("ingested").type), count)
    return pa.RecordBatch.from_pydict(columns, schema=table.schema)


def follow(bench: Bench, config: Path, name: str, rows: int) -> tuple[float, float]:
    """Run a sink to its end. Returns rows a second over its transactions, and CPU seconds per million rows, start included."""
    command = (BIN / "fogline", "sink", "run", name, "--once", "--json", "--config", config)
    seconds = inserted = used = 0.0
    with bench.child(f"sink-{name}", *command) as child:
        for line in child.lines(LIMIT_S):
            if "inserted" in line:
                seconds += line["seconds"]
                inserted += line["inserted"]
            used = cpu_s(child) or used
        if child.wait() or inserted != rows:
            raise Failed(f"sink {name}: {inserted:.0f} of {rows} rows: it {child.end}")
    return (inserted / seconds if seconds else 0.0), used / max(rows, 1) * 1e6


def by_spark(bench: Bench, table: FlowTable, url: str, rows: int) -> tuple[float, float]:
    """Rows a second and CPU seconds per million rows of the write, after Spark has read the table once."""
    jdbc = url.replace("postgresql://fog@", "jdbc:postgresql://")
    with bench.child("jdbc_job", *bench.program("jdbc_job"), table.folder.path, jdbc) as child:
        warm = child.next_line(LIMIT_S)
        before = cpu_s(child)
        done = child.next_line(LIMIT_S)
        used = cpu_s(child) - before
        child.wait(LIMIT_S)
    if (warm["rows"], done["written"]) != (rows, rows):
        raise Failed(f"Spark wrote {done['written']} of {rows} rows")
    return rows / done["seconds"], used / rows * 1e6


def bare_ingestion(table: FlowTable, url: str, rows: int) -> float:
    """Rows a second of one ingestion of rows that are in memory, in one transaction."""
    from adbc_driver_postgresql import dbapi

    found = DeltaTable(table.folder.uri).to_pyarrow_table()
    found = found.cast(pa.schema([(each.name, plain(each.type)) for each in found.schema]))
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        began = time.perf_counter()
        cursor.adbc_ingest("bare", found, mode="create")
        connection.commit()
        return rows / (time.perf_counter() - began)


def plain(kind: pa.DataType) -> pa.DataType:
    """Return a type that the driver knows."""
    return pa.string() if kind == pa.string_view() else kind
