"""Windows over `readings`, with a real Spark. A writer appends to the tables as the flow does, and users change them."""

import logging
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, tables_in
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.readers import readers_of
from fogline_cloud.flows.tables.schema import MEASURED, READINGS, arrow_schema, in_file
from fogline_cloud.frames import readings
from fogline_cloud.frames.kept_windows import merged_spans
from fogline_cloud.frames.windows import windows
from fogline_cloud.frames.windows_folder import WindowsFolder
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_lab.waiting import until

NOON = datetime(2026, 1, 9, 12, tzinfo=UTC)
LIMIT_S = 60.0
OFTEN = "500 milliseconds"
OWNER = Owner("t", "main", "run-1", 1)
MEANS = windows(["device", "metric"], "1 hour", {"mean": "avg(value)", "n": "count(*)"})


class Readings:
    """Table `readings` of a tenant."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.settings = CloudSettings(tenant="t", flow=FlowSettings(tables=str(folder / "tables")))
        self.folder = tables_in(self.settings.flow.tables, {}).readings
        schema = arrow_schema(in_file(READINGS)).append(pa.field("day", pa.date32()))
        DeltaTable.create(self.folder.uri, schema, partition_by=["day"], configuration={"delta.enableChangeDataFeed": "true"})
        self.log = DeltaLog("readings", self.folder)
        self.log.take_over(OWNER, {})
        self.batches = 0
        self.into = str(folder / "windows")

    def append(self, *rows, ingested=NOON):
        """Commit a micro-batch. `rows`: device, time and value of each."""
        same = {"metric": "t", "source": "/t/devices/d", "id": "i", "ordinal": 0, "run": OWNER.run, "flow": "main"}
        every = [
            {**same, "device": device, "time": time, "value": value, "ingested": ingested, "batch": self.batches}
            for device, time, value in rows
        ]
        schema = arrow_schema(in_file(READINGS))
        with FileWriter(self.folder, MEASURED["readings"]) as writer:
            writer.add(pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in every], schema))
            self.log.append(writer.close(), MicroBatch("main", OWNER.run, self.batches), OWNER)
        self.batches += 1

    def keep(self, kept=MEANS):
        kept.keep(self.spark, self.settings, into=self.into, once=True)

    def kept(self):
        return sorted(self.spark.read.format("delta").load(self.into).collect(), key=str)

    def plain(self, kept=MEANS):
        """The same windows, by one query over all readings."""
        return sorted(kept.of(readings(self.spark, self.settings)).collect(), key=str)

    def lose_history(self):
        """Commit some rows and a deletion, and let no reader know what came before."""
        for at in range(3):
            self.append(("d-1", NOON + timedelta(hours=at), 2.0))
        DeltaTable(self.folder.uri).delete("device = 'gone'")
        DeltaTable(self.folder.uri).create_checkpoint()
        for version in range(DeltaTable(self.folder.uri).version()):
            Path(self.folder.path, "_delta_log", f"{version:020}.json").unlink()


@pytest.fixture
def table(spark, folder) -> Readings:
    return Readings(spark, folder)


def test_windows_are_those_of_one_query_over_all_readings(table):
    """After the first rows; rows of a gateway that was offline for three days; a replay; a deletion; a compaction; new rows."""
    steps: list[Any] = [
        lambda: table.append(*((f"d-{at % 3}", NOON + timedelta(minutes=at), float(at)) for at in range(200))),
        lambda: (
            table.append(*(("late", NOON - timedelta(days=3, minutes=at), 1.0) for at in range(100))),
            table.append(("d-0", None, 7.0), (None, NOON, 8.0)),
        ),
        lambda: DeltaTable(table.folder.uri).update({"value": "value + 100"}, predicate="device = 'd-1'"),
        lambda: (DeltaTable(table.folder.uri).delete("device = 'late'"), DeltaTable(table.folder.uri).optimize.compact()),
    ]
    sizes = []
    for step in steps:
        step()
        table.keep()
        assert table.kept() == table.plain()
        sizes.append(len(table.kept()))
    assert sizes[1] > sizes[0] + 1, "the late rows have windows of their own"
    assert sizes[3] == sizes[0] + 1, "windows without rows are gone; a row without a device has one"


@pytest.mark.slow
def test_windows_that_a_kill_left_between_merge_and_checkpoint_are_the_same(table, monkeypatch):
    table.append(("d-1", NOON, 1.0))
    table.keep()
    table.append(("d-1", NOON, 3.0), ("d-2", NOON, 5.0))
    newest = max((int(each.name) for each in _commits(table)), default=-1)

    table.keep()
    for each in _commits(table):  # as if the process had ended after the merge
        if int(each.name) > newest:
            each.unlink()
            each.with_name(f".{each.name}.crc").unlink(missing_ok=True)
    table.keep()

    assert table.kept() == table.plain()


def _commits(table):
    return [each for each in Path(table.into, "_checkpoint", "commits").iterdir() if each.name.isdecimal()]


@pytest.mark.slow
def test_a_reader_that_was_away_for_longer_than_the_log_goes_on(table):
    table.append(("d-1", NOON, 1.0), ("gone", NOON, 1.0))
    table.keep()
    table.lose_history()

    table.keep()

    assert table.kept() == table.plain()
    assert "gone" not in {row["device"] for row in table.kept()}


@pytest.mark.slow
async def test_windows_that_are_kept_on_a_thread_go_on_after_lost_history(table):
    table.append(("d-1", NOON, 1.0), ("gone", NOON, 1.0))
    table.keep()
    table.lose_history()

    kept = MEANS.keep(table.spark, table.settings, into=table.into, every=OFTEN)
    try:
        first = kept.query
        await until(lambda: kept.query is not first, "no query follows the one that lost its history")
        table.append(("d-2", NOON, 5.0))
        kept.query.processAllAvailable()
        assert table.kept() == table.plain()
        assert not kept.wait(0)
    finally:
        kept.stop()
    assert kept.wait(0)


@pytest.mark.slow
def test_windows_with_another_definition_are_all_computed_again(table, caplog):
    high = windows(["device", "metric"], "1 hour", {"mean": "avg(value)", "n": "count(*)"}, "value > 5")
    table.append(("d-1", NOON, 1.0), ("d-1", NOON + timedelta(minutes=20), 9.0))
    table.keep()
    table.append(("d-2", NOON, 6.0))
    with caplog.at_level(logging.WARNING):
        table.keep(high)
    assert table.kept() == table.plain(high)
    assert "another definition" in caplog.text

    table.append(("d-1", NOON, 7.0))
    table.keep()  # whose checkpoint ended before the other definition came
    assert table.kept() == table.plain()


def test_a_process_whose_folder_another_one_has_taken_changes_nothing(table):
    """As in an object store, where no lock of the kernel tells of the other process."""
    table.append(("d-1", NOON, 1.0))
    kept = MEANS.keep(table.spark, table.settings, into=table.into, every=OFTEN)
    kept.query.processAllAvailable()
    before = table.kept()
    WindowsFolder(table.into, {}).claim()
    table.append(("d-1", NOON, 2.0))
    with pytest.raises(Misconfigured, match="another process keeps this folder now"):
        kept.wait(LIMIT_S)
    assert table.kept() == before


@pytest.mark.slow
def test_windows_that_slide_are_those_of_one_query(table):
    sliding = windows(["device"], "1 hour", {"n": "count(*)", "sum": "sum(value)"}, slide="15 minutes")
    table.append(*((f"d-{at % 3}", NOON + timedelta(minutes=at), float(at)) for at in range(100)))
    table.keep(sliding)
    table.append(("d-1", datetime(2026, 1, 6, 0, 10, tzinfo=UTC), 1.0))
    DeltaTable(table.folder.uri).delete("device = 'd-1' AND value > 50")
    table.keep(sliding)
    assert table.kept() == table.plain(sliding)
    assert sum(row["n"] for row in table.kept()) == 4 * DeltaTable(table.folder.uri).to_pyarrow_table().num_rows


def test_a_stream_notes_the_version_that_it_has_read(table):
    table.append(("d-1", NOON, 1.0))
    table.keep()
    table.append(("d-1", NOON, 2.0))
    table.keep()

    (note,) = readers_of(table.folder)
    assert note.name.startswith("windows-")
    assert note.version == DeltaTable(table.folder.uri).version()


def test_names_that_the_table_of_windows_has_itself_are_refused():
    with pytest.raises(Misconfigured, match="neither `start` nor `end`"):
        windows(["device"], "1 hour", {"start": "count(*)"})


@given(st.sets(st.integers(0, 400), min_size=1), st.integers(1, 10))
def test_spans_hold_each_day_and_are_as_few_as_wanted(numbers, most):
    days = [date(2026, 1, 1) + timedelta(days=each) for each in numbers]
    spans = merged_spans(days, most)
    assert 1 <= len(spans) <= most
    assert all(any(first <= day <= last for first, last in spans) for day in days)
    assert all(first in days and last in days for first, last in spans)
    assert sorted(spans) == spans
