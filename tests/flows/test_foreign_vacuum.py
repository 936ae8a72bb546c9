"""A VACUUM that keeps nothing, beside a flow: it deletes files that workers have just written, before a commit names them."""

import shutil
from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from flows.replays import with_flow
from flows.tenant_flow import Flow
from fogline.errors import Misconfigured
from fogline.events.event import Event
from fogline_cloud.flows.replay.swap import swap
from fogline_cloud.flows.tables.batch import File
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FilesGone, TableFolder
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.sources import gather

MakeEvent = Callable[..., Event]
TABLES = ("events", "readings", "raw")


def vacuum(log: DeltaLog) -> None:
    """What `VACUUM table RETAIN 0 HOURS` does."""
    DeltaTable(log.folder.uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def vacuum_before(monkeypatch: pytest.MonkeyPatch, times: int) -> dict[str, int]:
    """Let a VACUUM come first, before so many of the commits of each table. Returns the number of commits to each."""
    tried = dict.fromkeys(TABLES, 0)
    append = DeltaLog.append

    def late(log: DeltaLog, files: list[File], *rest: object) -> bool:
        if files:
            tried[log.table] += 1
            if tried[log.table] <= times:
                vacuum(log)
        return append(log, files, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaLog, "append", late)
    return tried


def findings(flow: Flow) -> list[str]:
    streams = gather(KafkaClients(flow.settings.kafka), flow.settings).streams
    return [str(finding) for each in streams for finding in judge(each)]


@pytest.mark.fault("K12")
def test_a_micro_batch_whose_files_a_vacuum_deleted_is_done_again_and_lands_once(
    flow: Flow, make_event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.settings = with_flow(flow, raw_days=90)
    again = {"replayed": True, "id": "ID-of-one"}
    flow.land([make_event(b"1", id="ID-of-one"), make_event(b"2"), make_event(b"3", **again)])
    tried = vacuum_before(monkeypatch, 1)
    flow.run()
    assert tried == {"events": 2, "readings": 2, "raw": 2}
    assert [row["sequence"] for row in flow.rows("readings")] == [1, 2]
    assert [row["outcome"] for row in flow.rows("events")] == ["ok", "ok", "duplicate"]
    assert len(flow.raw_rows()) == 3
    assert findings(flow) == []


@pytest.mark.fault("K12")
def test_a_vacuum_at_each_try_stops_the_flow_with_the_reason_and_the_remedy(
    flow: Flow, make_event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.land([make_event(b"1")])
    with monkeypatch.context() as busy:
        vacuum_before(busy, 100)
        with pytest.raises(Misconfigured, match=r"VACUUM .* 24 hours, or .*`fogline table maintain`.* start the flow again"):
            flow.run()
    flow.run()
    assert [row["sequence"] for row in flow.rows("readings")] == [1]


@pytest.mark.fault("K12")
def test_rows_that_a_vacuum_deleted_after_their_commit_are_named_and_land_again_from_kafka(
    flow: Flow, make_event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A VACUUM that listed the files before the commit deletes them after it: docs/operations.md, section Tables."""
    flow.land([make_event(b"1")])
    flow.run()
    tables = [str(flow.tables / name) for name in ("events", "readings")]
    before = [DeltaTable(table).version() for table in tables]
    flow.land([make_event(b"2")])
    append = DeltaLog.append

    def then_deleted(log: DeltaLog, files: list[File], *rest: object) -> bool:
        done = append(log, files, *rest)  # type: ignore[arg-type]
        if log.table == "events":
            log.folder.file_system().delete_file(files[0].path)
        return done

    with monkeypatch.context() as racing:
        racing.setattr(DeltaLog, "append", then_deleted)
        with pytest.raises(Misconfigured, match=r"day=.*\.parquet.*VACUUM.*docs/operations.md"):
            flow.run()
    with pytest.raises(Misconfigured, match="VACUUM"):
        flow.run()
    for table, version in zip(tables, before, strict=True):
        DeltaTable(table).restore(version)
    shutil.rmtree(flow.checkpoint)
    flow.run()
    assert [row["sequence"] for row in flow.rows("events")] == [1, 2]
    assert [row["sequence"] for row in flow.rows("readings")] == [1, 2]
    assert findings(flow) == []


@pytest.mark.fault("K12")
def test_a_replay_removes_no_rows_if_those_that_replace_them_are_gone(flow: Flow, make_event: MakeEvent) -> None:
    flow.land([make_event(b"1")])
    flow.run()
    log = DeltaLog("events", TableFolder(str(flow.tables / "events")))
    staged = File(path="day=2026-01-01/part-gone.zstd.parquet", size=5, modified_ms=0, day="2026-01-01", stats="{}")
    version = log.version()
    with pytest.raises(FilesGone, match="part-gone"):
        swap(flow.spark, log, [], [staged])
    assert log.version() == version
