"""Maintenance of tables to which a flow appends."""

import json
import os
import re
import threading
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fogline.errors import Unreachable
from fogline_cloud.cli.main import main
from fogline_cloud.fleet.fleet_table import FleetTable, fleet_of
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.readers import forget_reader, note_reader
from fogline_cloud.maintenance import plan, table
from fogline_cloud.maintenance.maintain import maintain
from fogline_cloud.maintenance.plan import Compaction
from fogline_cloud.maintenance.reader_lag import change_histories
from fogline_cloud.maintenance.table import MaintainedTable

MONDAY, TUESDAY = date(2026, 1, 5), date(2026, 1, 6)
NOW = datetime(2026, 1, 6, 12, tzinfo=UTC)


@pytest.fixture
def events(make_table):
    return make_table("events")


@pytest.fixture
def run(settings, make_table):
    """Maintain both tables, with other `[tables]` settings if some are given. Returns the steps."""
    make_table("readings")

    def maintained(now=NOW, *, dry_run=False, **given):
        steps = []
        tables = msgspec.structs.replace(settings.tables, **given)
        assert maintain(msgspec.structs.replace(settings, tables=tables), steps.append, now, dry_run=dry_run)
        done = [msgspec.structs.replace(step, seconds=0) for step in steps if step.table == "events"]
        return [step for step in done if step.step not in {"index", "unindex"}]  # see test_key_files.py

    return maintained


def test_small_files_of_closed_days_are_joined_and_no_row_changes(events, run):
    """F9."""
    for day in (MONDAY, TUESDAY):
        for _ in range(30):
            events.append(day)
    before = events.rows()

    (step,) = run()

    assert str(step) == "events: files of 2026-01-05 compacted: 30 -> 1 (0.0 s)"
    assert (events.rows(), events.file_count()) == (before, 31), "the open day has few files yet"
    assert [len(events.log.holding(MicroBatch("main", "run-1", number))) for number in (3, 40)] == [1, 1], (
        "joined files have statistics of their batches"
    )
    assert run() == []


def test_a_flow_appends_while_its_tables_are_maintained(events, run, monkeypatch):
    monkeypatch.setattr(plan, "MOST_OPEN", 3)
    monkeypatch.setattr(plan, "MOST_CLOSED", 3)
    failures = []
    begun, stop = threading.Event(), threading.Event()

    def append():
        try:
            while not stop.is_set():
                events.append(MONDAY)
                events.append(TUESDAY)
                begun.set()
        except Exception as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    flow = threading.Thread(target=append)
    flow.start()
    assert begun.wait(60), "the flow did not append"
    deadline = time.monotonic() + 60
    compacted = Counter()
    while not all(compacted[day] > 2 for day in ("2026-01-05", "2026-01-06")) and time.monotonic() < deadline:
        compacted.update(step.day for step in run() if step.step == "compact")
    stop.set()
    flow.join(60)

    assert failures == []
    assert all(compacted[day] > 2 for day in ("2026-01-05", "2026-01-06")), f"too little was appended: {compacted}"
    assert events.sequences() == [batch * 100 + 1 for batch in range(events.batches)]
    run()
    assert events.file_count() <= 2 * 4


def test_a_step_that_meets_other_commits_each_time_is_given_up(events, monkeypatch):
    for _ in range(3):
        events.append(MONDAY)
    own = MaintainedTable("events", events.folder)
    joined = Compaction("2026-01-05", 3, 3, plan.CLOSED_BYTES)

    def lose(*_, **__):
        raise table.CommitFailedError("Commit failed: a concurrent transaction deleted the same data.\nHelp: ...")

    monkeypatch.setattr(own.table.optimize.__class__, "compact", lose)
    with pytest.raises(Unreachable, match=r"events: other commits came first 8 times: try again later"):
        own.compact(joined)


def test_rows_are_not_deleted_before_they_are_counted_for_the_fleet(settings, make_table, monkeypatch):
    """Table `fleet` keeps their numbers for years; a day that was not counted would be lost for it."""
    events, _ = make_table("events"), make_table("readings")
    events.append(date(2025, 12, 1), "d-1", "d-2")
    kept = msgspec.structs.replace(settings, tables=msgspec.structs.replace(settings.tables, keep_days=8))

    def fail(*_):
        raise Unreachable("the object store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(FleetTable, "update", fail)
        assert not maintain(kept, lambda _: None, NOW, dry_run=False)
    assert len(events.rows()) == 2
    assert maintain(kept, lambda _: None, NOW, dry_run=False)
    assert events.rows() == []
    assert maintain(kept, lambda _: None, NOW, dry_run=False)
    rows = fleet_of(kept, NOW.date()).current(["device", "events"]).to_pylist()
    assert sorted(rows, key=repr) == [{"device": "d-1", "events": 1}, {"device": "d-2", "events": 1}]


def test_rows_beyond_the_retention_are_deleted(events, run):
    for day in (date(2025, 12, 1), date(2025, 12, 28), date(2025, 12, 29)):
        events.append(day)

    (step,) = run(keep_days=8)

    assert (step.step, step.day) == ("delete", "2025-12-01 to 2025-12-28")
    assert [row["day"] for row in events.rows()] == [date(2025, 12, 29)]
    assert run() == [], "without the setting, rows are kept"


def test_days_of_table_raw_expire_on_their_own(events, make_table, run, settings):
    raw = make_table("raw")
    for day in (date(2025, 10, 7), date(2025, 10, 8), TUESDAY):
        raw.append(day)
    events.append(date(2025, 12, 1))
    run()
    kept = {row["day"] for row in DeltaTable(raw.folder.uri).to_pyarrow_table(columns=["day"]).to_pylist()}
    assert (settings.flow.raw_days, kept, events.file_count()) == (90, {date(2025, 10, 8), TUESDAY}, 1)


def test_files_that_no_version_needs_are_deleted_after_their_time(events, run):
    events.append(MONDAY)
    folder = Path(events.folder.path)
    (folder / "_contested" / "run-0").mkdir(parents=True)
    old, new = (folder / "day=2026-01-05" / name for name in ("old.parquet", "new.parquet"))
    contested = folder / "_contested" / "run-0" / "part.parquet"
    for path in (old, new, contested):
        path.write_bytes(b"x")
    now = datetime.now(UTC)
    for path in (old, contested):
        os.utime(path, ((now - timedelta(days=8)).timestamp(),) * 2)

    (step,) = run(now)

    assert (step.step, step.files) == ("vacuum", 2)
    assert (old.exists(), contested.exists(), new.exists()) == (False, False, True), "a worker may be writing the new one"
    os.utime(new, ((now - timedelta(days=8)).timestamp(),) * 2)
    assert run(now + timedelta(hours=1)) == [], "each vacuum lists every file"
    assert run(now + timedelta(hours=21))[0].files == 1


@pytest.mark.slow
def test_the_log_is_bounded_and_the_flow_goes_on(events, run, monkeypatch):
    for _ in range(250):
        events.append(TUESDAY)

    steps = run(keep_commits=20)

    assert [step.step for step in steps] == ["compact", "log"]
    log = Path(events.folder.path, "_delta_log")
    assert len(list(log.glob("*.json"))) < 20 + 110, "20 commits, and those since the checkpoint before them"
    events.append(TUESDAY)
    assert len(DeltaTable(events.folder.uri).to_pyarrow_table()) == 251
    assert events.log.newest(MicroBatch("main", "run-1", 0)) == 250


def test_the_log_is_kept_for_a_reader_that_is_behind(events, run):
    for _ in range(250):
        events.append(TUESDAY)
    note_reader(events.folder, "hourly", 30)

    run(datetime.now(UTC), keep_commits=20)

    changes = DeltaTable(events.folder.uri).load_cdf(starting_version=31, ending_version=250)
    assert pa.table(changes.read_all()).num_rows == 220
    forget_reader(events.folder, "hourly")
    assert "log" in [step.step for step in run(datetime.now(UTC), keep_commits=20)]


def test_files_are_kept_for_a_reader_that_is_behind(events, run):
    """Its changes may be in a file that a replay or a deletion has replaced since."""
    events.append(MONDAY)
    now = datetime.now(UTC)
    folder = Path(events.folder.path)
    replaced = folder / "day=2026-01-05" / "replaced.parquet"
    replaced.write_bytes(b"x")
    for path, days in ((replaced, 8), (folder / "_delta_log" / f"{0:020}.json", 9)):
        os.utime(path, ((now - timedelta(days=days)).timestamp(),) * 2)
    note_reader(events.folder, "hourly", 0)

    assert run(now) == []
    assert replaced.exists()
    forget_reader(events.folder, "hourly")
    (step,) = run(now + timedelta(hours=21))
    assert (step.step, step.files) == ("vacuum", 1)


def test_files_of_earlier_versions_are_kept_for_vacuum_days_though_checkpoints_forget_them(events, run):
    """A file that was written three weeks ago, and replaced two days ago: a reader that slept for five days needs it."""
    events.append(MONDAY)
    table = DeltaTable(events.folder.uri)
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 1 days"})
    (file,) = table.file_uris()
    table.delete()
    log, now = Path(events.folder.path, "_delta_log"), datetime.now(UTC)
    removal = log / f"{table.version():020}.json"
    two_days_ago_ms = int((now - timedelta(days=2)).timestamp() * 1000)
    removal.write_text(re.sub(r'"deletionTimestamp":\d+', f'"deletionTimestamp":{two_days_ago_ms}', removal.read_text()))
    DeltaTable(events.folder.uri).create_checkpoint()
    for path in (Path(file.removeprefix("file://")), *log.glob("*.json")):
        days = 2 if path == removal else 21
        os.utime(path, ((now - timedelta(days=days)).timestamp(),) * 2)

    assert run(now) == []
    assert Path(file.removeprefix("file://")).exists()
    assert DeltaTable(events.folder.uri, table.version() - 1).to_pyarrow_table().num_rows > 0
    os.utime(removal, ((now - timedelta(days=8)).timestamp(),) * 2)
    (step,) = run(now + timedelta(hours=21))
    assert (step.step, step.files) == ("vacuum", 1)


def test_the_history_of_a_table_says_how_far_back_a_reader_without_a_note_can_go(events, make_table, settings):
    make_table("readings")
    events.append(MONDAY)
    events.append(MONDAY)
    (history, *_) = change_histories(settings)
    assert (history.table, history.versions, history.is_cut) == ("events", 4, False)

    DeltaTable(events.folder.uri).create_checkpoint()
    log = Path(events.folder.path, "_delta_log")
    for version in range(2):
        (log / f"{version:020}.json").unlink()
    moment = datetime.now(UTC) - timedelta(hours=3)
    os.utime(log / f"{2:020}.json", (moment.timestamp(),) * 2)
    (history, *_) = change_histories(settings)
    assert (history.versions, history.is_cut) == (2, True)
    assert history.since_s == pytest.approx(moment.timestamp())


def test_the_command_lists_readers_and_forgets_one(events, make_table, settings, tmp_path, capsys):
    config = tmp_path / "cloud.toml"
    config.write_text(f'tenant = "t"\n[flow]\ntables = "{settings.flow.tables}"\n')
    make_table("readings")
    events.append(MONDAY)
    note_reader(events.folder, "hourly", 0)

    assert main(["table", "readers", "--config", str(config), "--json"]) == 0
    (reader,) = json.loads(capsys.readouterr().out)
    assert (reader["table"], reader["reader"], reader["version"], reader["behind"]) == ("events", "hourly", 0, 2)

    assert main(["table", "readers", "--config", str(config), "--forget", "hourly"]) == 0
    assert main(["table", "readers", "--config", str(config), "--forget", "hourly"]) == 2
    assert "there is no reader hourly" in capsys.readouterr().err


def test_a_dry_run_changes_nothing(events, run):
    for _ in range(9):
        events.append(MONDAY)
    events.append(date(2025, 1, 1))
    version = DeltaTable(events.folder.uri).version()

    steps = run(dry_run=True, keep_days=100)

    assert [(step.step, step.day) for step in steps] == [("delete", "2025-01-01 to 2025-01-01"), ("compact", "2026-01-05")]
    assert DeltaTable(events.folder.uri).version() == version
    assert events.file_count() == 10


def test_command_maintains_the_tables_and_names_failures(events, make_table, settings, tmp_path, capsys):
    config = tmp_path / "cloud.toml"
    config.write_text(f'tenant = "t"\n[flow]\ntables = "{settings.flow.tables}"\n')
    for _ in range(9):
        events.append(MONDAY)

    assert main(["table", "maintain", "--config", str(config), "--json"]) == 1

    counted, done, _, failed = map(msgspec.json.decode, capsys.readouterr().out.splitlines())
    assert (counted["table"], counted["step"], counted["files"]) == ("fleet", "count", 1)
    assert (done["step"], done["before"], done["after"]) == ("compact", 9, 1)
    assert failed["failure"].endswith("readings: there is no table: start the flow first")
    make_table("readings")
    assert main(["table", "maintain", "--config", str(config)]) == 0
