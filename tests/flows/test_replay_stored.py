"""Rows that a replay reads with their records from the files of the tables, without Spark."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest

from fogline_cloud.flows.replay import stored, windows
from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.replay.stored import Coverage, StoredRows, may_miss, read_stored
from fogline_cloud.flows.replay.windows import EARLIEST_US, LATEST_US, SpanFile, Window, span_files
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.schema import RAW_STORED, STORED

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
RUN = {"flow": "main", "tenant": "t", "run": "r", "batch": 3}
FILE_ROWS = 40


def at(offset: int) -> dict[str, Any]:
    return {"topic": "raw", "partition": offset % 2, "offset": offset, "ingested": BEGIN + timedelta(milliseconds=offset)}


def event(offset: int, **changes: Any) -> dict[str, Any]:
    outcome = {"outcome": "ok", "size_bytes": 1, "readings": [], "recordedtime": BEGIN, "device": "d"}
    return {**dict.fromkeys(STORED.names), **RUN, **at(offset), **outcome, **changes}


def record(offset: int, **changes: Any) -> dict[str, Any]:
    headers = [{"key": "ce_id", "value": b"%d" % offset}]
    return {**RUN, **at(offset), "value": b"%d" % offset, "headers": headers, "topic_id": "id", **changes}


def write(folder: TableFolder, rows: list[dict[str, Any]], columns: pa.Schema) -> list[SpanFile]:
    files = []
    for begin in range(0, len(rows), FILE_ROWS):
        some = rows[begin : begin + FILE_ROWS]
        with FileWriter(folder, ("ingested",)) as writer:
            writer.add(pa.RecordBatch.from_pylist(some, columns))
            (file,) = writer.close()
        first, last = (round(some[place]["ingested"].timestamp() * 1e6) for place in (0, -1))
        files.append(SpanFile(file.path, len(some), first, last))
    return files


@pytest.fixture
def small() -> Iterator[None]:
    """Windows of few rows, and parts of fewer."""
    with (
        mock.patch.object(windows, "ROWS", 30),
        mock.patch.object(windows, "_SAMPLE_ROWS", 10),
        mock.patch.object(stored, "_MAX_ROWS", 7),
        mock.patch.object(stored, "_BATCH_ROWS", 4),
    ):
        yield


@pytest.fixture
def folders(folder) -> StoredRows:
    for name in ("events", "raw"):
        (folder / name).mkdir()
    return StoredRows(
        events=TableFolder(str(folder / "events")),
        raw=TableFolder(str(folder / "raw")),
        selection=Selection(days=(date(2026, 11, 1), date(2026, 11, 1))),
        flow="main",
        tenant="t",
        finished={"r": 3},
        find_missing=True,
    )


def read(
    folders: StoredRows, events: list[dict[str, Any]], raw: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[Coverage]]:
    raw_files = [] if folders.raw is None else write(folders.raw, raw, RAW_STORED)
    coverage: list[Coverage] = []
    every = windows.windows(write(folders.events, events, STORED), raw_files)
    batches = list(read_stored(folders, every, coverage))
    return [row for each in batches for row in each.to_pylist()], coverage


def test_each_row_comes_once_with_its_own_record(folders, small):
    numbers = range(1, 101)
    rows, coverage = read(folders, [event(number) for number in numbers], [record(number) for number in numbers])

    assert sorted(row["offset"] for row in rows) == [*numbers]
    assert all(row["value"] == b"%d" % row["offset"] == row["headers"][0]["value"] for row in rows)
    assert not may_miss(coverage, to_the_end=True)


def test_rows_that_are_not_selected_stay_away(folders, small):
    others = [{"flow": "other"}, {"tenant": "u"}, {"batch": 4}, {"run": "s"}, {"outcome": "gap"}, {"device": "e"}]
    chosen = msgspec.structs.replace(folders, selection=Selection(device="d"))
    rows, _ = read(chosen, [*(event(n, **each) for n, each in enumerate(others)), event(50)], [record(n) for n in range(60)])
    assert [row["offset"] for row in rows] == [50]


def test_a_row_without_a_record_needs_its_body_and_its_headers(folders, small):
    kept, lost = {"data": b"x", "outcome": "dead"}, {"data": b"x", "outcome": "dead", "recordedtime": None}
    events = [event(1), event(2, **kept), event(3, **lost), event(4, **kept), event(5, size_bytes=0, outcome="dead")]
    rows, _ = read(folders, events, [record(4, headers=None), record(6)])
    assert [(row["offset"], row["headers"]) for row in rows] == [(2, None), (4, None), (5, None)]

    rows, _ = read(msgspec.structs.replace(folders, raw=None, find_missing=False), events, [])
    assert [row["offset"] for row in rows] == [2, 4, 5]
    assert "headers" not in rows[0]


@pytest.mark.parametrize(
    ("landed", "missing"), [([2, 4, 6, 8], False), ([2, 6, 8], True), ([2, 4, 6], False), ([8], True), ([], False)]
)
def test_a_record_before_the_last_row_of_its_partition_is_missing(folders, small, landed, missing):
    _, coverage = read(folders, [event(offset, outcome="statement") for offset in landed], [record(n) for n in (2, 4, 6, 8)])
    assert may_miss(coverage, to_the_end=True) == missing
    assert may_miss(coverage, to_the_end=False) == (len(landed) < 4)


@pytest.mark.parametrize(
    ("lowest", "missing"), [({}, False), ({"": 2}, False), ({"": 3}, True), ({"another": 0}, True), ({"other topic": 9}, False)]
)
def test_a_record_that_kafka_has_no_more_is_missing_whatever_its_partition_holds(folders, small, lowest, missing):
    """An idle partition: its only record is gone from Kafka, or the topic was created again, and no row follows."""
    _, ((coverage),) = read(folders, [], [record(2)])
    here = (coverage.topic, coverage.topic_id, coverage.partition)
    places = {"": here, "another": (here[0], "another", here[2]), "other topic": ("other", here[1], here[2])}
    assert may_miss([coverage], to_the_end=True, lowest={places[name]: low for name, low in lowest.items()}) == missing


def test_windows_hold_every_moment_once_and_files_without_statistics_are_in_each():
    files = [SpanFile("a", 100_000, 1000, 2000), SpanFile("b", 100_000, 2001, 9000), SpanFile("c", 0, EARLIEST_US, LATEST_US)]
    found = windows.windows(files, [SpanFile("r", 10, 1500, 1600)])
    assert len(found) >= 5
    assert (found[0].begin_us, found[-1].end_us) == (EARLIEST_US, LATEST_US + 1)
    assert all(one.end_us == other.begin_us for one, other in pairwise(found))
    assert all("c" in each.events for each in found)
    assert {name for each in found for name in (*each.events, *each.raw)} == {"a", "b", "c", "r"}


def test_the_files_of_some_days_are_read_from_the_log():
    day = [date(2026, 11, 1), date(2026, 11, 2)]
    times = pa.array([BEGIN, None], pa.timestamp("us", tz="UTC"))
    log = pa.table({"path": ["a", "b"], "num_records": [7, None], "partition.day": day, "min.ingested": times})
    begin = round(BEGIN.timestamp() * 1e6)
    assert span_files(log, None) == [SpanFile("a", 7, begin, LATEST_US), SpanFile("b", 0, EARLIEST_US, LATEST_US)]
    assert [each.path for each in span_files(log, (day[1], day[1]))] == ["b"]
    assert windows.windows([], []) == []
    assert windows.windows([], [SpanFile("r", 1, 5, 5)]) == [Window(EARLIEST_US, LATEST_US + 1, [], ["r"])]
