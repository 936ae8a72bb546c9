"""Commits to a Delta table by owners of different epochs, without Spark and Kafka."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from flows.flow_log import FIRST, SECOND, batch, files, made_log, made_table, sequences
from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.owner import Owner


@pytest.fixture
def table(folder) -> TableFolder:
    return made_table(folder)


@pytest.fixture
def log(table) -> DeltaLog:
    return made_log(table)


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
@pytest.mark.slow
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
