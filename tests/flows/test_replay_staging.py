"""Files that a replay's workers write, without Spark."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from fogline_cloud.flows.replay.difference import Difference
from fogline_cloud.flows.replay.reparse import CHANGED
from fogline_cloud.flows.replay.staging import (
    OutcomeChange,
    ReplayFolders,
    StagedReplay,
    joined,
    keep_events,
    stage_changed,
)
from fogline_cloud.flows.tables.files import TableFolder, read_rows
from fogline_cloud.flows.tables.schema import STORED

DAYS = (datetime(2026, 11, 1, 23, tzinfo=UTC), datetime(2026, 11, 2, 1, tzinfo=UTC))


@pytest.fixture
def folders(folder) -> ReplayFolders:
    for name in ("events", "readings"):
        (folder / name).mkdir()
    return ReplayFolders(TableFolder(str(folder / "events")), TableFolder(str(folder / "readings")))


def row(offset: int, day: datetime, was: str, values: Sequence[float]) -> dict[str, Any]:
    readings = [{"ordinal": at, "metric": "t", "value": value} for at, value in enumerate(values)]
    known = {"topic": "raw", "partition": 0, "offset": offset, "ingested": day, "run": "r", "batch": offset // 10}
    parsed = {"outcome": "ok", "parser": "json", "type": "telemetry", "readings": readings, "source": "/t", "id": str(offset)}
    differences = [{"metric": "t", "change": "came"} for _ in values]
    return {**dict.fromkeys(CHANGED.names), **known, **parsed, "was": was, "differences": differences}


def staged(replies: Any) -> StagedReplay:
    return joined([msgspec.json.decode(each.column("reply")[0].as_py(), type=StagedReplay) for each in replies])


def changed() -> list[pa.RecordBatch]:
    rows = [row(1, DAYS[0], "dead", [1.0, 2.0]), row(12, DAYS[1], "dead", [3.0]), row(13, DAYS[1], "ok", [4.0])]
    return [pa.RecordBatch.from_pylist([each], CHANGED) for each in rows]


def test_one_pass_writes_events_and_readings_and_counts_differences(folders):
    found = staged(stage_changed(folders, "", [3, 2], changed()))

    assert (found.rows, found.outcomes) == (5, [OutcomeChange("dead", "ok", 2), OutcomeChange("ok", "ok", 1)])
    assert found.differences == [Difference("json", "telemetry", "t", "came", 4)]
    assert found.touched == [(date(2026, 11, 1), "r", 0), (date(2026, 11, 2), "r", 1)]
    assert [each.day for each in found.events] == [each.day for each in found.readings] == ["2026-11-01", "2026-11-02"]
    events, readings = (
        pa.concat_tables(read_rows(folder, each.path) for each in files)
        for folder, files in ((folders.events, found.events), (folders.readings, found.readings))
    )
    assert (events.schema.names, events.column("offset").to_pylist()) == (STORED.names, [1, 12, 13])
    assert readings.select(["id", "ordinal", "value"]).to_pylist() == [
        {"id": name, "ordinal": ordinal, "value": value}
        for name, ordinal, value in (("1", 0, 1.0), ("1", 1, 2.0), ("12", 0, 3.0), ("13", 0, 4.0))
    ]


def test_a_dry_run_counts_and_writes_nothing(folders, folder):
    found = staged(stage_changed(folders, None, [3], changed()))
    assert (found.rows, found.events, found.readings) == (3, [], [])
    assert found.outcomes == [OutcomeChange("dead", "ok", 2), OutcomeChange("ok", "ok", 1)]
    assert [each for each in folder.rglob("*") if each.is_file()] == []


def test_rows_that_stay_keep_the_columns_of_a_user(folders):
    rows = changed()[0].select(STORED.names).append_column("site", pa.array(["cellar"])).append_column("day", pa.array(["x"]))
    (file,) = staged(keep_events(folders, [rows])).events
    kept = read_rows(folders.events, file.path)
    assert kept.column_names == [*STORED.names, "site"]
    assert kept.column("site").to_pylist() == ["cellar"]
