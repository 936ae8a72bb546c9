"""Commits to a Delta table by owners of different epochs, without Spark and Kafka."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from fogline.errors import Misconfigured, Unreachable
from fogline_cloud.flows.tables import delta_log
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.own_commits import SETTLED_S
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
    found = "no such file is left.* VACUUM" if damage == "deleted" else f"the driver finds {file.size - 1} bytes: "

    with pytest.raises(Misconfigured, match=f"wrote {file.size} bytes there, .*{found}.* share"):
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


@pytest.fixture
def before_commits(monkeypatch):
    """Call the functions in this list, one after the other, between the checks of a flow's commits and these commits."""
    write, changes = DeltaLog._write, []

    def change_and_write(self, commit, owner):
        if changes:
            changes.pop(0)()
        write(self, commit, owner)

    monkeypatch.setattr(DeltaLog, "_write", change_and_write)
    return changes


@pytest.mark.fault("K12")
def test_300_batches_land_though_an_alter_comes_before_each_commit(table, log, before_commits):
    def alter():
        user = DeltaTable(table.uri)
        user.alter.set_table_properties({"delta.logRetentionDuration": f"interval {30 + user.version() % 7} days"})

    for number in range(300):
        before_commits.append(alter)
        assert log.append(files(table, number), batch(FIRST, number), FIRST)

    assert sequences(table) == list(range(300))
    assert DeltaTable(table.uri).version() == 601


@pytest.mark.fault("K12")
def test_batches_land_though_users_delete_rows_and_compact_before_each_commit(table, log, before_commits):
    for number in range(20):
        before_commits += [
            lambda: DeltaTable(table.uri).delete("sequence < 0"),
            DeltaTable(table.uri).optimize.compact,
        ]
        log.append(files(table, number, -1 - number), batch(FIRST, number), FIRST)
    DeltaTable(table.uri).delete("sequence < 0")

    assert sequences(table) == list(range(20))


def test_a_constraint_that_a_user_adds_before_a_commit_stops_the_flow(table, log, before_commits):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    before_commits.append(lambda: DeltaTable(table.uri).alter.add_constraint({"positive": "sequence > 0"}))

    with pytest.raises(Misconfigured, match="does not check the constraint positive"):
        log.append(files(table, 2), batch(FIRST, 1), FIRST)


def losing_answers(monkeypatch, times=1):
    """Let `times` commits be stored and then fail, as delta-rs reports one that it has repeated after a lost answer."""
    write, left = DeltaLog._write, [times]

    def write_and_lose(self, commit, owner):
        write(self, commit, owner)
        if left[0]:
            left[0] -= 1
            raise CommitFailedError("Failed to commit transaction: Concurrent transaction failed.")

    monkeypatch.setattr(DeltaLog, "_write", write_and_lose)


@pytest.mark.fault("K12")
def test_a_batch_whose_answer_was_lost_is_committed_once(table, log, monkeypatch):
    losing_answers(monkeypatch)
    for number in range(3):
        assert log.append(files(table, number), batch(FIRST, number), FIRST)

    assert sequences(table) == [0, 1, 2]
    assert DeltaTable(table.uri).version() == 4, "the table, the owner, and one commit for each batch"


@pytest.mark.fault("K12")
def test_a_takeover_whose_answer_was_lost_makes_its_owner_the_owner(table, log, monkeypatch):
    losing_answers(monkeypatch)
    newer = DeltaLog("events", table)
    newer.take_over(SECOND, {})

    assert newer.append(files(table, 1), batch(SECOND, 0), SECOND)
    with pytest.raises(Misconfigured, match="taken over"):
        log.append(files(table, 2), batch(FIRST, 0), FIRST)


def test_two_processes_with_one_checkpoint_do_not_both_become_its_owner(table, log, monkeypatch):
    """A checkpoint in an object store has no lease."""
    mine, twin = DeltaLog("events", table), DeltaLog("events", table)
    epoch_of = DeltaLog.epoch_of

    def after_the_twin(self, owner):
        found = epoch_of(self, owner)
        if self is mine and not met:
            met.append(self)
            twin.take_over(SECOND, {})
        return found

    met = []
    monkeypatch.setattr(DeltaLog, "epoch_of", after_the_twin)
    with pytest.raises(Misconfigured, match="taken over"):
        mine.take_over(SECOND, {})


def overwrite(folder, version, *actions):
    """Write an entry of the log as a program does that looks whether it exists, and then puts it."""
    entry = folder / "events" / "_delta_log" / f"{version:020}.json"
    assert entry.exists()
    entry.write_text("".join(f"{json.dumps(each)}\n" for each in ({"commitInfo": {"operation": "OPTIMIZE"}}, *actions)))


@pytest.fixture
def clock(monkeypatch):
    """Seconds of the steady clock, which a test sets."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.fault("K12")
def test_a_commit_that_another_program_overwrote_is_repeated_and_named(table, log, folder, caplog):
    log.append(files(table, 1, 2), batch(FIRST, 0), FIRST)
    log.append(files(table, 3, 4, 5), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)
    assert sequences(table) == [1, 2]

    with caplog.at_level(logging.ERROR):
        log.append(files(table, 6), batch(FIRST, 2), FIRST)

    assert sequences(table) == [1, 2, 3, 4, 5, 6]
    assert log.newest(batch(FIRST, 0)) == 2
    assert "overwritten version 3 of the table, and so removed batch 1 (3 rows of 1970-01-01" in caplog.text


@pytest.mark.fault("K12")
def test_an_overwritten_takeover_is_repeated(table, log, folder, caplog):
    overwrite(folder, 1)
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    assert sequences(table) == [1]
    assert "the start of the flow (0 rows)" in caplog.text


@pytest.mark.fault("K12")
def test_a_commit_that_was_overwritten_late_is_repeated(table, clock, folder):
    log = DeltaLog("events", table)
    log.take_over(FIRST, {})
    for number in range(3):
        log.append(files(table, number), batch(FIRST, number), FIRST)
    overwrite(folder, 3)

    log.append(files(table, 3), batch(FIRST, 3), FIRST)
    assert sequences(table) == [0, 2, 3], "it was read back already, when batch 2 came"
    clock[0] += SETTLED_S
    log.append(files(table, 4), batch(FIRST, 4), FIRST)

    assert sequences(table) == [0, 1, 2, 3, 4]
    assert log.newest(batch(FIRST, 0)) == 4


@pytest.mark.fault("K12")
def test_rows_that_a_later_commit_compacted_are_not_repeated(table, log, folder):
    log.append(files(table, 1, 2), batch(FIRST, 0), FIRST)
    log.append(files(table, 3), batch(FIRST, 1), FIRST)
    user = DeltaTable(table.uri)
    user.optimize.compact()
    overwrite(folder, 3)

    log.append(files(table, 4), batch(FIRST, 2), FIRST)

    assert sequences(table) == [1, 2, 3, 4]


@pytest.mark.fault("K12")
def test_an_overwritten_commit_whose_files_are_gone_stops_the_flow(table, log, folder):
    (file,) = written = files(table, 1)
    log.append(written, batch(FIRST, 0), FIRST)
    overwrite(folder, 2)
    (folder / "events" / file.path).unlink()

    with pytest.raises(Misconfigured, match=r"version 2 .* removed batch 0 \(1 rows of 1970-01-01.*`fogline flow replay`"):
        log.append(files(table, 2), batch(FIRST, 1), FIRST)


def test_a_restore_that_overwrote_a_commit_stops_the_flow(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)
    entry = folder / "events" / "_delta_log" / f"{3:020}.json"
    entry.write_text(entry.read_text().replace("OPTIMIZE", "RESTORE"))

    with pytest.raises(Misconfigured, match="was restored to an earlier version"):
        log.append(files(table, 3), batch(FIRST, 2), FIRST)


def test_a_newer_owner_that_overwrote_a_commit_stops_the_flow(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    marks = dict.fromkeys(SECOND.applications, SECOND.epoch)
    overwrite(folder, 2, *({"txn": {"appId": name, "version": epoch}} for name, epoch in marks.items()))

    with pytest.raises(Misconfigured, match="taken over"):
        log.append(files(table, 2), batch(FIRST, 1), FIRST)


def test_a_log_that_was_cut_off_after_the_last_commit_is_not_taken_for_overwritten(table, log, folder, caplog):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    DeltaTable(table.uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    DeltaTable(table.uri).create_checkpoint()
    for version in range(3):
        (folder / "events" / "_delta_log" / f"{version:020}.json").unlink()

    log.append(files(table, 2), batch(FIRST, 1), FIRST)

    assert sequences(table) == [1, 2]
    assert "overwritten" not in caplog.text


def test_a_commit_whose_repeat_fails_is_repeated_by_the_next_one(table, log, folder, monkeypatch):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    overwrite(folder, 2)
    with monkeypatch.context() as away:
        away.setattr(delta_log, "missing_files", lambda *_: (_ for _ in ()).throw(Unreachable("the store is away")))
        with pytest.raises(Unreachable):
            log.append(files(table, 2), batch(FIRST, 1), FIRST)

    log.append(files(table, 2), batch(FIRST, 1), FIRST)

    assert sequences(table) == [1, 2]


@pytest.mark.fault("K12")
def test_a_commit_that_was_overwritten_between_two_queries_of_a_process_is_repeated(table, log, folder, caplog):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)

    later = DeltaLog("events", table, log)
    later.read_back()

    assert later.newest(batch(FIRST, 0)) == 1, "a takeover compares it with the checkpoint"
    assert sequences(table) == [1, 2]
    later.append(files(table, 3), batch(FIRST, 2), FIRST)
    assert sequences(table) == [1, 2, 3]


@pytest.mark.fault("K12")
def test_a_batch_is_compared_with_a_table_that_has_the_overwritten_commit_again(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    overwrite(folder, 2)
    assert log.newest(batch(FIRST, 0)) == -1, "so a batch that is done would be done again"

    log.read_back()

    assert log.newest(batch(FIRST, 0)) == 0


def test_a_restore_that_overwrote_a_commit_between_two_queries_stops_the_flow(table, log, folder):
    log.append(files(table, 1), batch(FIRST, 0), FIRST)
    log.append(files(table, 2), batch(FIRST, 1), FIRST)
    overwrite(folder, 3)
    entry = folder / "events" / "_delta_log" / f"{3:020}.json"
    entry.write_text(entry.read_text().replace("OPTIMIZE", "RESTORE"))

    with pytest.raises(Misconfigured, match="was restored to an earlier version"):
        DeltaLog("events", table, log).read_back()
