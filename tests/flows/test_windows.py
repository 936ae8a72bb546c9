"""Windows over `readings`, with a real Spark. A writer appends to the tables as the flow does, and users change them."""

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
from fogline_cloud.frames.windows import merged_spans, windows
from fogline_cloud.settings import CloudSettings, FlowSettings

NOON = datetime(2026, 1, 9, 12, tzinfo=UTC)
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

    def keep(self):
        MEANS.keep(self.spark, self.settings, into=self.into, once=True)

    def kept(self):
        return sorted(self.spark.read.format("delta").load(self.into).collect(), key=str)

    def plain(self):
        """The same windows, by one query over all readings."""
        return sorted(MEANS.of(readings(self.spark, self.settings)).collect(), key=str)


@pytest.fixture
def table(spark, folder) -> Readings:
    return Readings(spark, folder)


def test_windows_are_those_of_one_query_over_all_readings(table):
    """After the first rows; rows of a gateway that was offline for three days; a replay; a deletion; a compaction; new rows."""
    steps: list[Any] = [
        lambda: table.append(*((f"d-{at % 3}", NOON + timedelta(minutes=at), float(at)) for at in range(200))),
        lambda: table.append(*(("late", NOON - timedelta(days=3, minutes=at), 1.0) for at in range(100))),
        lambda: table.append(("d-0", None, 7.0), (None, NOON, 8.0)),
        lambda: DeltaTable(table.folder.uri).update({"value": "value + 100"}, predicate="device = 'd-1'"),
        lambda: DeltaTable(table.folder.uri).delete("device = 'late'"),
        lambda: [DeltaTable(table.folder.uri).optimize.compact()],
        lambda: table.append(("d-9", NOON, 1.0)),
    ]
    sizes = []
    for step in steps:
        step()
        table.keep()
        assert table.kept() == table.plain()
        sizes.append(len(table.kept()))
    assert sizes[1] > sizes[0], "the late rows have windows of their own"
    assert sizes[4] == sizes[3] - (sizes[1] - sizes[0]), "windows without rows are gone"


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


def test_a_reader_that_was_away_for_longer_than_the_log_goes_on(table):
    table.append(("d-1", NOON, 1.0), ("gone", NOON, 1.0))
    table.keep()
    for at in range(3):
        table.append(("d-1", NOON + timedelta(hours=at), 2.0))
    DeltaTable(table.folder.uri).delete("device = 'gone'")
    DeltaTable(table.folder.uri).create_checkpoint()
    for version in range(DeltaTable(table.folder.uri).version()):
        _entry(table, version).unlink()

    table.keep()

    assert table.kept() == table.plain()
    assert "gone" not in {row["device"] for row in table.kept()}


def _entry(table, version):
    return Path(table.folder.path, "_delta_log", f"{version:020}.json")


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
