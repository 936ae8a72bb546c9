"""Commits to a Delta table by owners of different epochs, without Spark and Kafka."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import EVENTS, arrow_schema

FIRST, SECOND = (Owner("t", "main", run, epoch) for run, epoch in (("run-1", 1), ("run-2", 2)))
COLUMNS = arrow_schema(EVENTS[:-1]).append(pa.field("day", pa.date32()))


@pytest.fixture
def table(folder) -> TableFolder:
    made = TableFolder(str(folder / "events"))
    DeltaTable.create(made.uri, COLUMNS, partition_by=["day"])
    return made


def files(table, *sequences):
    rows = {"ingested": pa.array([0] * len(sequences), pa.timestamp("us", tz="UTC")), "sequence": pa.array(sequences)}
    with FileWriter(table, ("sequence",)) as writer:
        writer.add(pa.RecordBatch.from_pydict(rows))
        return writer.close()


def sequences(table):
    return sorted(DeltaTable(table.uri).to_pyarrow_table(columns=["sequence"])["sequence"].to_pylist())


def batch(owner, number):
    return MicroBatch("main", owner.run, number)


@pytest.fixture
def log(table) -> DeltaLog:
    made = DeltaLog("events", table)
    made.take_over(FIRST, {})
    return made


@pytest.mark.fault("K7")
def test_the_former_owner_cannot_commit(table, log):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    newer = DeltaLog("events", table)
    newer.take_over(SECOND, {})

    with pytest.raises(
        Misconfigured, match=r"\[flow\] name = main: another flow of this name or lane has taken over .*: stop one"
    ):
        log.append(files(table, 2), batch(FIRST, 1), FIRST)
    newer.append(files(table, 2), batch(SECOND, 0), SECOND)

    assert sequences(table) == [1, 2]


@pytest.mark.fault("K7")
def test_a_claim_between_the_check_and_the_commit_is_a_conflict(table, log, monkeypatch):
    """F1: Delta itself refuses the commit, because the takeover wrote the same transaction application."""
    check = DeltaLog._require

    def check_then_lose(self, owner):
        check(self, owner)
        if owner == FIRST:
            DeltaLog("events", table).take_over(SECOND, {})

    monkeypatch.setattr(DeltaLog, "_require", check_then_lose)
    with pytest.raises(Misconfigured, match="taken over"):
        log.append(files(table, 1), batch(FIRST, 0), FIRST)
    assert sequences(table) == []


@pytest.mark.fault("K7")
def test_one_of_many_concurrent_claims_wins(table):
    logs = [DeltaLog("events", table) for _ in range(4)]
    together = Barrier(len(logs))

    def take_over(number):
        together.wait(60)
        try:
            logs[number].take_over(Owner("t", "main", f"run-{number}", 1), {})
        except Misconfigured:
            return None
        return number

    with ThreadPoolExecutor(len(logs)) as pool:
        (winner,) = [number for number in pool.map(take_over, range(len(logs))) if number is not None]
    found = DeltaLog("events", table)
    assert [found.version_of(f"t/run/run-{number}") for number in range(4)] == [
        1 if number == winner else None for number in range(4)
    ]


def test_flows_of_other_names_and_tenants_do_not_meet(table, log):
    for other in (Owner("t", "other", "run-3", 1), Owner("u", "main", "run-4", 7)):
        DeltaLog("events", table).take_over(other, {})
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    assert sequences(table) == [1]


def test_a_batch_is_committed_once_even_without_rows(table, log):
    log.append([], batch(FIRST, 0), FIRST)
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    assert sequences(table) == []
    assert log.newest(batch(FIRST, 0)) == 0


@pytest.mark.fault("K7")
def test_no_commit_follows_a_restore_that_the_flow_does_not_know_of(table, log):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    assert not log.is_restored(FIRST.name)
    DeltaTable(table.uri).restore(2)

    with pytest.raises(Misconfigured, match=r"was restored to an earlier version.*delete the folder"):
        log.append(files(table, 3), batch(FIRST, 2), FIRST)

    assert sequences(table) == [1]
    assert DeltaLog("events", table).is_restored(FIRST.name)
    assert not DeltaLog("events", table).is_restored("t/other"), "it has no expectation of this table"
    log.take_over(SECOND, {})
    assert not DeltaLog("events", table).is_restored(FIRST.name), "the restore was taken note of"


@pytest.mark.parametrize("damage", ["deleted", "shorter"])
def test_a_file_that_is_not_as_its_worker_left_it_is_not_committed(table, log, folder, damage):
    """F12: a worker on another machine wrote it into a folder of its own, or was killed while it wrote."""
    (file,) = written = files(table, 1)
    path = folder / "events" / file.path
    path.unlink() if damage == "deleted" else path.write_bytes(path.read_bytes()[:-1])
    found = "no such file" if damage == "deleted" else f"{file.size - 1} bytes"

    with pytest.raises(Misconfigured, match=f"wrote {file.size} bytes there, but the driver finds {found}: .* share"):
        log.append(written, batch(FIRST, 0), FIRST)

    assert sequences(table) == []


def test_the_newest_version_is_seen_also_after_the_log_was_cut_off(table, log, folder):
    """The log lists its entries only if the next one is there, or its own is not."""
    other = DeltaLog("events", table)
    other.append(files(table, 1), batch(FIRST, 0), FIRST)
    assert log.newest(batch(FIRST, 0)) == 0
    for number in range(1, 4):
        other.append(files(table, number), batch(FIRST, number), FIRST)
    DeltaTable(table.uri).create_checkpoint()
    for version in range(5):
        (folder / "events" / "_delta_log" / f"{version:020}.json").unlink()

    assert log.newest(batch(FIRST, 0)) == 3
    assert log.version() == other.version() == 5
