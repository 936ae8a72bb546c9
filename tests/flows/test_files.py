"""Files of the tables, and records derived from rows, without Spark and Kafka."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError

from fogline.events.event import Event
from fogline_cloud.flows.tables.files import FileWriter, TableFolder, missing_probes, read_rows, statistics, write_probe
from fogline_cloud.flows.tables.schema import DECIDED, STORED
from fogline_cloud.flows.worker import derive

MakeEvent = Callable[..., Event]
DAY_US = 86_400_000_000


def rows_at(*ingested_us: int) -> pa.RecordBatch:
    """Rows of `events` with nothing but a time and a number."""
    moments = pa.array(ingested_us, pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([moments, pa.array(range(len(moments)))], names=["ingested", "sequence"])


def test_each_day_gets_a_file_with_statistics(folder: Path) -> None:
    (folder / "a table").mkdir()
    table = TableFolder(str(folder / "a table"))
    with FileWriter(table, ("ingested", "sequence")) as writer:
        writer.add(rows_at(5, DAY_US - 1, DAY_US, 7))
        writer.add(rows_at())
        files = writer.close()
    assert [each.day for each in files] == ["1970-01-01", "1970-01-02"]
    assert [read_rows(table, each.path).column("sequence").to_pylist() for each in files] == [[0, 1, 3], [2]]
    assert [each.size for each in files] == [(folder / "a table" / each.path).stat().st_size for each in files]
    assert json.loads(files[0].stats) == {
        "numRecords": 3,
        "minValues": {"ingested": "1970-01-01T00:00:00.000Z", "sequence": 0},
        "maxValues": {"ingested": "1970-01-02T00:00:00.000Z", "sequence": 3},
        "nullCount": {"ingested": 0, "sequence": 0},
    }


def test_local_folder_is_scanned_without_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a table %").mkdir()
    table = TableFolder(str(folder / "a table %"))
    with FileWriter(table, ("ingested",)) as writer:
        writer.add(rows_at(5))
        (file,) = writer.close()
    monkeypatch.setattr(TableFolder, "file_system", lambda *_: pytest.fail("delta-rs's file system is Python"))
    assert read_rows(table, file.path).column("sequence").to_pylist() == [0]


def test_a_column_of_nulls_has_no_minimum() -> None:
    rows = pa.table({"stream": pa.array([None, None], pa.string())})
    assert statistics(rows, ("stream",)) == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"stream": 2}}


def test_a_task_that_fails_leaves_no_file(folder: Path) -> None:
    def fail() -> None:
        with FileWriter(TableFolder(str(folder)), ("ingested",)) as writer:
            writer.add(rows_at(1))
            assert writer.close()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not list(folder.rglob("*.parquet"))


def test_rows_over_the_buffer_are_written_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fogline_cloud.flows.tables.files.MAX_BUFFERED_BYTES", 100)
    with FileWriter(TableFolder(str(folder)), ("ingested",)) as writer:
        for _ in range(5):
            writer.add(rows_at(*range(10)))
        assert len(writer.close()) == 5


def stored(events: list[Event], readings: list[list[tuple[object, ...]]]) -> pa.Table:
    """Events as rows of `events`, with these readings."""
    columns: dict[str, list[object]] = {name: [None] * len(events) for name in STORED.names}
    for name in (column.name for column in DECIDED):
        if hasattr(events[0], name) and name not in {"time", "recordedtime"}:
            columns[name] = [getattr(event, name) for event in events]
    names = ("ordinal", "metric", "value", "text", "unit", "time")
    columns["readings"] = [[dict(zip(names, each, strict=True)) for each in some] for some in readings]
    columns["outcome"] = ["ok"] * len(events)
    columns["recordedtime"] = [1_700_000_000_000_001] * len(events)
    return pa.table([pa.array(columns[field.name], field.type) for field in STORED], schema=STORED)


def test_long_records_are_split_without_loss(make_event: MakeEvent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive, "MAX_JSON_BYTES", 2000)
    numbers = [(n, f"m{n}", float(n), "x" * 300, None, None) for n in range(20)]
    rows = stored([make_event(), make_event(), make_event()], [numbers, [], numbers[:1]])
    made = list(derive.derived_records(rows, "t"))
    assert all(len(each.value) <= 2000 for each in made)
    canonical = [json.loads(each.value) for each in made if each.topic.startswith("fogline.canonical")]
    assert [(each["id"], reading["ordinal"]) for each in canonical for reading in each["readings"]] == [
        *(("ID-1", n) for n in range(20)),
        ("ID-3", 0),
    ]
    assert canonical[0]["recordedtime"] == canonical[0]["readings"][0]["time"] == "2023-11-14T22:13:20.000001Z"
    fleet = [each for record in made if record.topic.startswith("fogline.fleet") for each in json.loads(record.value)]
    assert [(each["id"], each["readings"]) for each in fleet] == [("ID-1", 20), ("ID-2", 0), ("ID-3", 1)]


def test_a_large_body_is_not_copied() -> None:
    cells = {"outcome": ["dead"], "device": ["d-1"], "size_bytes": [600_000], "data": [b"x" * 600_000]}
    rows = pa.table([pa.array(cells.get(field.name, [None]), field.type) for field in STORED], schema=STORED)
    dead = [each for each in derive.derived_records(rows, "t") if each.topic == "fogline.dead.t"]
    assert [(each.value, each.headers[-1]) for each in dead] == [(b"", ("fogline_body", b"table"))]


def test_a_driver_sees_the_probes_of_executors_that_share_its_folder(folder: Path) -> None:
    there = TableFolder(str(folder))
    for each in ("a", "b"):
        write_probe(there, each)
    assert missing_probes(there, ["a", "b", "c"]) == ["c"]
    with pytest.raises((DeltaError, OSError)):
        write_probe(TableFolder(str(folder / "elsewhere")), "c")
    assert not list(folder.iterdir())
