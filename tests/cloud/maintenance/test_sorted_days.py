"""Closed days that maintenance sorts by device: a query for one device skips the files of the others."""

from datetime import UTC, date, datetime, timedelta

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, WriterProperties

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.files import FileWriter
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import MEASURED, READINGS, arrow_schema, in_file
from fogline_cloud.maintenance import maintain as maintenance
from fogline_cloud.maintenance import sorted_days
from fogline_cloud.maintenance.maintain import maintain

OWNER = Owner("t", "main", "run-1", 1)
MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
NOON = datetime(2026, 1, 6, 12, tzinfo=UTC)
DEVICES = [f"d-{number:02}" for number in range(20)]
ROWS = 20_000
"""Rows of one commit: a tenth of a second of reading, and enough for several files."""


@pytest.fixture
def readings(make_table, monkeypatch):
    """A table whose sorted days have small files."""
    make_table("events")
    for module in (sorted_days, maintenance):
        monkeypatch.setattr(module, "SORTED_BYTES", 64 << 10)
    monkeypatch.setattr(sorted_days, "WRITER", WriterProperties(compression="ZSTD", max_row_group_size=2000))
    return make_table("readings")


@pytest.fixture
def run(settings):
    def maintained(now=NOON, *, sort=True):
        steps = []
        chosen = msgspec.structs.replace(settings.tables, sort_closed_days=sort)
        assert maintain(msgspec.structs.replace(settings, tables=chosen), steps.append, now, dry_run=False)
        return [each for each in steps if each.table == "readings" and each.step != "vacuum"]

    return maintained


def land(readings, day, rows=ROWS):
    """Commit readings of all devices in turn, as gateways send them."""
    batch = MicroBatch("main", "run-1", readings.batches)
    readings.batches += 1
    moment = datetime(day.year, day.month, day.day, 1, tzinfo=UTC)
    times = [moment + timedelta(milliseconds=at) for at in range(rows)]
    known = {
        "device": pa.array([DEVICES[at % len(DEVICES)] for at in range(rows)]),
        "sequence": pa.array(range(rows), pa.int64()),
        "value": pa.array([at * 0.37 for at in range(rows)]),
        "time": pa.array(times, pa.timestamp("us", "UTC")),
        "ingested": pa.array([moment] * rows, pa.timestamp("us", "UTC")),
        "run": pa.array(["run-1"] * rows),
        "batch": pa.array([batch.number] * rows, pa.int64()),
    }
    schema = arrow_schema(in_file(READINGS))
    columns = [known[each.name].cast(each.type) if each.name in known else pa.nulls(rows, each.type) for each in schema]
    with FileWriter(readings.folder, MEASURED["readings"]) as writer:
        writer.add(pa.RecordBatch.from_arrays(columns, schema=schema))
        readings.log.append(writer.close(), batch, OWNER)


def files_for(readings, device, day=MONDAY):
    """Return how many files of the day a reader opens for one device, as their statistics say, and how many there are."""
    found = pa.table(DeltaTable(readings.folder.uri).get_add_actions(flatten=True))
    found = found.filter(pc.equal(found.column("partition.day"), pa.scalar(day)))
    may = pc.and_(pc.less_equal(found.column("min.device"), device), pc.greater_equal(found.column("max.device"), device))
    return found.filter(may).num_rows, found.num_rows


def content(readings):
    rows = DeltaTable(readings.folder.uri).to_pyarrow_table()
    return rows.sort_by([("day", "ascending"), ("batch", "ascending"), ("sequence", "ascending")])


def test_a_devices_day_is_in_few_files_after_it_and_no_row_changes(readings, run):
    for day in (MONDAY, MONDAY, TUESDAY):
        land(readings, day)
    assert files_for(readings, "d-07") == (2, 2)
    before = content(readings)

    steps = run()

    assert [(each.step, each.day) for each in steps] == [("sort", "2026-01-05")]
    read, every = files_for(readings, "d-07")
    assert every >= 4
    assert read <= every / 2
    assert str(steps[0]).startswith(f"readings: files of 2026-01-05 sorted by device: 2 -> {every} (")
    assert content(readings).equals(before)
    assert files_for(readings, "d-07", TUESDAY) == (1, 1), "the open day stays as it is"


def test_a_sorted_day_is_written_again_only_if_rows_are_added_to_it(readings, run):
    land(readings, MONDAY)
    assert [each.step for each in run()] == ["sort"]
    assert run() == []
    land(readings, MONDAY, 500)
    assert [each.step for each in run()] == ["sort"]
    assert run() == []


def test_a_day_is_sorted_some_hours_after_its_end_and_only_if_asked(readings, run):
    land(readings, MONDAY)
    assert run(sort=False) == []
    assert run(datetime(2026, 1, 6, 1, tzinfo=UTC)) == []
    assert [each.step for each in run(datetime(2026, 1, 6, 7, tzinfo=UTC))] == ["sort"]
