"""Which commits make a transaction, and what the entries of a log say."""

import json

from hypothesis import given
from hypothesis import strategies as st

from fogline_cloud.sinks.commits import Holds, TableCommit, TableFile, decode
from fogline_cloud.sinks.plan import next_changes, next_copy


def commit(version: int, rows: int, *, deletes: bool = False) -> TableCommit:
    holds = Holds.DELETED if deletes else Holds.INSERTED
    return TableCommit(version, (TableFile(f"{version}.parquet", 1, "2026-01-05", rows, holds),) if rows else ())


def steps(commits, most):
    found, rest = [], list(commits)
    while (step := next_changes(rest, most)) is not None:
        found.append((step.first, step.last))
        rest = [each for each in rest if each.version > step.last]
    return found


def test_versions_that_add_rows_share_a_transaction_up_to_the_bound():
    assert steps([commit(1, 3), commit(2, 3), commit(3, 3), commit(4, 20), commit(5, 1)], 6) == [(1, 2), (3, 3), (4, 4), (5, 5)]


def test_a_version_that_removes_rows_is_alone():
    assert steps([commit(1, 1), commit(2, 1, deletes=True), commit(3, 1), commit(4, 0)], 100) == [(1, 1), (2, 2), (3, 4)]


def test_no_more_commits_are_read_than_a_transaction_needs():
    read = []

    def commits():
        for version in range(100):
            read.append(version)
            yield commit(version, 10)

    assert next_changes(commits(), 30).last == 2
    assert len(read) == 4


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30), st.integers(1, 40))
def test_every_version_is_in_one_transaction(kinds, most):
    commits = [commit(version, rows, deletes=deletes) for version, (rows, deletes) in enumerate(kinds)]
    covered = [version for first, last in steps(commits, most) for version in range(first, last + 1)]
    assert covered == list(range(len(kinds)))


@given(st.lists(st.integers(0, 20), max_size=20), st.integers(1, 40))
def test_a_copy_takes_every_file_once(rows, most):
    files = [TableFile(str(number), 1, None, count) for number, count in enumerate(rows)]
    done, taken = 0, []
    while True:
        step = next_copy(7, files, done, most)
        taken += step.files
        assert step.done > done or not files
        done = step.done
        if step.is_last:
            break
    assert taken == files


def entry(*actions: dict) -> bytes:
    return "\n".join(map(json.dumps, actions)).encode()


ADD = {"path": "day=2026-01-05/a%20b.parquet", "size": 9, "partitionValues": {"day": "2026-01-05"}, "dataChange": True}
REMOVE = {"path": "day=2026-01-05/c.parquet", "deletionTimestamp": 1, "dataChange": True}


def test_added_and_removed_files_are_inserted_and_deleted_rows():
    found = decode(
        3, entry({"commitInfo": {"timestamp": 7}}, {"remove": REMOVE}, {"add": {**ADD, "stats": '{"numRecords":2}'}})
    )
    assert [(each.path, each.holds, each.rows) for each in found.files] == [
        ("day=2026-01-05/c.parquet", Holds.DELETED, None),
        ("day=2026-01-05/a b.parquet", Holds.INSERTED, 2),
    ]
    assert (found.at_ms, found.only_inserts) == (7, False)


def test_a_compaction_has_no_rows():
    moved = [{"add": {**ADD, "dataChange": False}}, {"remove": {**REMOVE, "dataChange": False}}]
    assert decode(3, entry(*moved)).files == ()


def test_recorded_changes_stand_for_the_files_of_their_commit():
    change = {"path": "_change_data/x.parquet", "size": 3, "partitionValues": {"day": "2026-01-05"}, "dataChange": False}
    (file,) = decode(3, entry({"add": ADD}, {"remove": REMOVE}, {"cdc": change})).files
    assert (file.path, file.holds) == ("_change_data/x.parquet", Holds.CHANGES)


def test_deletion_vectors_are_noticed():
    assert decode(3, entry({"add": {**ADD, "deletionVector": {"storageType": "u"}}})).hides_rows
