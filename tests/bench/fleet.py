"""`fogline fleet` over 10 million events of 10,000 devices in 30 days, beside the same question to DuckDB over `events`."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from processes import BIN, Bench, Failed

from fogline_cloud.flows.tables.files import TableFolder
from fogline_lab.flow_table import FlowTable, usual_row

ROWS = 250
"""Rows, as a multiple of the events of the gateway's row: 10 million."""
DAYS = 30
DEVICES = 10_000
GATEWAYS = 200
LIMIT_S = 600.0
_DELAY = "ingested - recordedtime"
QUESTIONS = {
    "coverage": "SELECT CAST(recordedtime AS DATE) AS heard, count(DISTINCT device), count(*) AS events GROUP BY heard",
    "silent": "SELECT device, max(recordedtime) AS last, count(*) AS events GROUP BY device",
    "late": f"SELECT gateway, count(*) AS events, quantile_disc({_DELAY}, [0.5, 0.99]), max({_DELAY}) GROUP BY gateway",
    "sizes": "SELECT gateway, count(*) AS events, quantile_disc(size_bytes, [0.5, 0.99]), sum(size_bytes) GROUP BY gateway",
    "health": "SELECT parser, outcome, count(*) AS events GROUP BY parser, outcome",
}
"""The same question to DuckDB, without its FROM."""


def measure(bench: Bench) -> dict[str, float]:
    """Make the events, ask before they are counted, count them, and ask every question of both."""
    folder = bench.subfolder("fleet")
    rows = ROWS * bench.events // DAYS
    table = FlowTable("events", TableFolder(str(folder / "tables" / "events")))
    config = folder / "cloud.toml"
    config.write_text('tenant = "t"\n[flow]\ntables = "tables"\n')
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=each) for each in range(DAYS)]
    for number, day in enumerate(days):
        table.append_rows(made_rows(table, rows, day, number))
    found = {"fleet.direct": ask(bench, config, "sizes", rows * DAYS)}
    (found["fleet.count"],) = run(bench, BIN / "fogline", "table", "maintain", "--json", "--config", config, status=1)[:1]
    for name in QUESTIONS:
        found[f"fleet.{name}"] = ask(bench, config, name, rows * DAYS)
        found[f"fleet.{name}_bare"] = bare(bench, table, name, rows * DAYS)
    ours, theirs = (sum(found[f"fleet.{name}{each}"] for name in QUESTIONS) for each in ("", "_bare"))
    return {**found, "fleet.ratio": ours / theirs}


def ask(bench: Bench, config: Path, name: str, events: int) -> float:
    """Return the CPU seconds of one question, its start included."""
    options = {"silent": ["--over", "1h"], "coverage": [], "health": []}.get(name, ["--by", "gateway"])
    options += [] if name == "silent" else ["--since", f"{DAYS + 1}d"]
    command = (BIN / "fogline", "fleet", name, *options, "--limit", DEVICES, "--without-registry", "--json", "--config", config)
    cpu_s, answer = run(bench, *command)
    counted = sum(each["events"] for each in answer if each.get("day") != "all") if name != "silent" else events
    if counted != events:
        raise Failed(f"fogline fleet {name}: {counted:,} of {events:,} events")
    return cpu_s


def bare(bench: Bench, table: FlowTable, name: str, events: int) -> float:
    """Return the CPU seconds of the same question to DuckDB."""
    cpu_s, answer = run(bench, *bench.program("fleet_query"), table.folder.path, QUESTIONS[name])
    if (counted := answer["events"]) != events:
        raise Failed(f"DuckDB, {name}: {counted:,} of {events:,} events")
    return cpu_s


def run(bench: Bench, *command: object, status: int = 0) -> tuple[float, Any]:
    """Run a command to its end. Returns its CPU seconds, and the first line that it printed."""
    with bench.metered("fleet", *command) as metered:
        found = metered.child.next_line(LIMIT_S)
        ended = metered.child.wait()
        usage = metered.end()
    if ended != status:
        raise Failed(f"{' '.join(map(str, command[1:4]))}: exit status {ended}")
    return usage.cpu_s, found


def made_rows(table: FlowTable, count: int, day: date, number: int) -> pa.RecordBatch:
    """Return the events of a day, in the order in which they came in. One gateway in fifty is offline for hours."""
    random = np.random.default_rng(number)
    device = random.integers(0, DEVICES, count)
    gateway = device % GATEWAYS
    begin_us = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
    ingested = begin_us + np.sort(random.integers(0, 86_400_000_000, count))
    delay_us = (random.lognormal(12, 1.5, count) + np.where(gateway % 50 == day.day % 50, 3600e6 * 5, 0)).astype(np.int64)
    usual = pa.RecordBatch.from_pylist([usual_row(0)], table.schema).to_pydict()
    columns = {name: pa.repeat(pa.scalar(values[0], table.schema.field(name).type), count) for name, values in usual.items()}
    text = pa.array([f"device-{each:05}" for each in range(DEVICES)])
    columns |= {
        "device": text.take(pa.array(device)),
        "gateway": pa.array([f"gw-{each:03}" for each in range(GATEWAYS)]).take(pa.array(gateway)),
        "lane": pa.array(["telemetry", "alarm"]).take(pa.array((random.random(count) < 0.01).astype(np.int64))),
        "adapter": pa.array(["mqtt", "coap", "ble"]).take(pa.array(device % 3)),
        "parser": pa.array(["json", "senml", "bthome", "cbor"]).take(pa.array(device % 4)),
        "outcome": pa.array(["ok", "dead", "skip", "duplicate"]).take(
            pa.array(random.choice(4, count, p=[0.97, 0.01, 0.01, 0.01]))
        ),
        "id": pa.array([f"{each:016x}" for each in random.integers(0, 2**60, count)]),
        "size_bytes": pa.array(random.lognormal(5, 1, count).astype(np.int64)),
        "sequence": pa.array(np.arange(count) + number * count),
        "timequality": pa.repeat("synced", count),
        "properties": pa.MapArray.from_arrays(
            pa.array(np.arange(count + 1, dtype=np.int32)),
            pa.repeat("firmware", count),
            pa.array(["1.0", "1.1", "2.0"]).take(pa.array(device % 7 % 3)),
        ),
    }
    for name, moments in (("ingested", ingested), ("recordedtime", ingested - delay_us), ("time", ingested - delay_us)):
        columns[name] = pa.array(moments).cast(table.schema.field(name).type)
    return pa.RecordBatch.from_pydict(columns, schema=table.schema)
