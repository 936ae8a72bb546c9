"""The tables and topics as DataFrames, and the notebook of docs/, with a real Kafka and a real Spark."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import functions as F

from flows.tenant_flow import Flow
from fogline_cloud import frames
from fogline_cloud.fleet.fleet_table import fleet_of
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.flow_table import FlowTable

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "readings.ipynb"
START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def at(minutes: int) -> str:
    return f"{START + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"


def event_times(frame: Any) -> dict[str, datetime]:
    """Return `event_time` by device."""
    return {
        row["device"]: datetime.fromtimestamp(row["s"], UTC)
        for row in frame.selectExpr("device", "unix_timestamp(event_time) AS s").collect()
    }


@pytest.mark.slow
def test_event_time_is_the_time_of_the_device_within_bounds(flow: Flow, make_event):
    flow.settings = msgspec.structs.replace(flow.settings, flow=msgspec.structs.replace(flow.settings.flow, raw_days=90))
    times = {"right": at(-3), "silent": None, "ahead": "2099-01-01T00:00:00Z", "behind": "1970-01-01T00:00:00Z"}
    flow.land([make_event(device=device, time=time, recordedtime=at(0)) for device, time in times.items()])
    flow.run()
    expected = {
        "right": START - timedelta(minutes=3),
        "silent": START,
        "ahead": START + frames.AHEAD,
        "behind": START - frames.BEHIND,
    }
    for function in (frames.readings, frames.events, frames.metadata):
        assert event_times(function(flow.spark, flow.settings)) == expected, function.__name__
    wider = frames.readings(flow.spark, flow.settings).withColumn("event_time", frames.event_time(ahead=timedelta(days=1)))
    assert event_times(wider)["ahead"] == START + timedelta(days=1)
    assert frames.raw(flow.spark, flow.settings).count() == len(times)
    for function in (frames.readings, frames.events, frames.metadata, frames.raw):
        batch, stream = (function(flow.spark, flow.settings, streaming=each) for each in (False, True))
        assert stream.isStreaming
        assert stream.schema == batch.schema


def test_a_device_in_the_year_2099_does_not_make_the_readings_of_others_late(flow: Flow, make_event, folder: Path):
    """F13: the windows of the second run are behind the watermark if it follows the clock of the device."""
    counted: dict[str, int] = {}

    def count() -> None:
        windows = (
            frames.readings(flow.spark, flow.settings, streaming=True)
            .withWatermark("event_time", "1 hour")
            .groupBy(F.window("event_time", "10 minutes"), "device")
            .count()
        )
        query = windows.writeStream.outputMode("update").option("checkpointLocation", str(folder / "windows"))
        query = query.foreachBatch(lambda rows, _: counted.update({row["device"]: row["count"] for row in rows.collect()}))
        query.trigger(availableNow=True).start().awaitTermination()

    flow.land([make_event(device="right", recordedtime=at(0))])
    flow.land([make_event(device="ahead", time="2099-01-01T00:00:00Z", recordedtime=at(0))])
    flow.run()
    count()
    flow.land([make_event(device="right", recordedtime=at(1))])
    flow.run()
    count()

    assert counted == {"right": 2, "ahead": 1}


def test_fleet_has_the_counts_of_all_events_also_of_those_that_came_after_the_last_maintenance(spark, folder: Path):
    settings = CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder)))
    events = FlowTable("events", TableFolder(str(folder / "events")))

    def counted() -> list[tuple[Any, ...]]:
        return sorted(map(tuple, frames.fleet(spark, settings).select("day", "device", "events").collect()))

    days = [date(2026, 1, 5), date(2026, 1, 6)]
    events.append(7, days[0])
    expected = [(days[0], f"d-{n}", 2 if n < 2 else 1) for n in range(5)]
    assert counted() == expected, "there is no table fleet yet"
    fleet_of(settings, days[1]).update()
    assert counted() == expected
    events.append(1, days[1])
    events.append(1, days[0])
    assert counted() == [*expected[:3], (days[0], "d-3", 2), expected[4], (days[1], "d-2", 1)]


@pytest.mark.slow
def test_the_notebook_runs(flow: Flow, make_event, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Its cells run in the folder of `cloud.toml`: windows, two joins, and a device that went silent."""
    (folder / "cloud.toml").write_text(
        f'tenant = "{flow.settings.tenant}"\n[kafka]\n"bootstrap.servers" = "{flow.settings.kafka["bootstrap.servers"]}"\n'
        f'[flow]\ntables = "{flow.tables}"\ncheckpoint = "{flow.checkpoint}"\n'
    )
    kitchen = [("lamp-1", 0, 20), ("lamp-1", 5, 22)]
    cellar = [("lamp-2", minutes, 10) for minutes in (1, 15, 30)]
    flow.land(
        [
            make_event(b'{"temperature": %d}' % value, device=device, recordedtime=at(minutes))
            for device, minutes, value in (*kitchen, *cellar)
        ]
    )
    flow.run()
    monkeypatch.chdir(folder)
    found: dict[str, Any] = {}
    try:
        for cell in json.loads(NOTEBOOK.read_text())["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}#{cell['id']}", "exec"), found)
        now, then = (
            sorted(map(tuple, flow.spark.table(name).selectExpr("room", "unix_timestamp(start) AS s", "mean").collect()))
            for name in ("means_now", "means_then")
        )
        silent = flow.spark.table("silent").selectExpr("device", "unix_timestamp(silent_since) AS s").collect()
    finally:
        flow.spark.conf.unset(PROVIDER)

    start = START.timestamp()
    cellar_now = [("cellar", start + seconds, 10.0) for seconds in (0, 600, 1800)]
    assert now == [*cellar_now, ("kitchen", start, 21.0)]
    assert then == [("attic", start, 10.0), *cellar_now[1:], ("kitchen", start, 21.0)]
    assert list(map(tuple, silent)) == [("lamp-1", start + 300)]


NEWCOMER = """
from delta.tables import DeltaTable
from fogline.errors import Misconfigured
from fogline_cloud import frames

spark = frames.session("cloud.toml")
for function in (frames.readings, frames.raw):
    try:
        function(spark, "cloud.toml")
    except Misconfigured as error:
        print(error)
spark.range(3).write.format("delta").save("own")
DeltaTable.forPath(spark, "own").delete("id = 1")
print("rows", sorted(row.id for row in spark.read.format("delta").load("own").collect()))
"""


def test_a_session_before_the_first_flow_says_what_is_missing_and_leaves_the_log_of_the_flow_alone(folder: Path):
    """`cloud.toml` is a link, as in a notebook's folder: its tables are beside the link. Delta's Python package is there."""
    notebooks, site = folder / "notebooks", folder / "site"
    for each in (notebooks, site):
        each.mkdir()
    (site / "cloud.toml").write_text('tenant = "t"\n[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[flow]\nraw_days = 0\n')
    (notebooks / "cloud.toml").symlink_to(site / "cloud.toml")
    run = [sys.executable, "-c", NEWCOMER]
    ran = subprocess.run(run, cwd=notebooks, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    missing, *raw, rows = ran.stdout.splitlines()
    assert missing == (
        f"there is no table readings in {notebooks}/tables/readings ([flow] tables in the settings): the flow makes it when it "
        "starts for the first time (`fogline flow run`)"
    )
    assert [each.endswith("With [flow] raw_days = 0 it makes no such table") for each in raw] == [True]
    assert rows == "rows [0, 2]"
    assert (notebooks / frames.LOG).exists()
    assert not (notebooks / "checkpoint.log").exists()
