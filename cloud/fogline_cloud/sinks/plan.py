"""Decides which commits, or which files of a snapshot, make one transaction of a database. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from fogline_cloud.sinks.commits import TableCommit, TableFile

MOST_VERSIONS = 1000
"""Largest number of versions in one transaction."""


class Changes(msgspec.Struct, frozen=True):
    """The changes of the versions `first` to `last`. Some may change no row. `entry`: digest of the last one's entry."""

    first: int
    last: int
    files: tuple[TableFile, ...]
    entry: str


class SnapshotCopy(msgspec.Struct, frozen=True):
    """Files of a snapshot. `done`: number of its files that the database has afterwards. `is_last`: it then has all."""

    version: int
    files: tuple[TableFile, ...]
    done: int
    is_last: bool


def next_changes(commits: Iterable[TableCommit], most_rows: int) -> Changes | None:
    """Return the transaction that the first of these commits belong to, None if there are none. Takes no more than it needs.

    Versions that only add rows share a transaction, up to `most_rows` rows. A version that removes rows has its own, because
    rows of the versions before it may be among them.
    """
    taken: list[TableCommit] = []
    rows = 0
    for commit in commits:
        alone = not commit.only_inserts
        if taken and (alone or rows + commit.rows > most_rows):
            break
        taken.append(commit)
        rows += commit.rows
        if alone or len(taken) == MOST_VERSIONS:
            break
    if not taken:
        return None
    files = tuple(file for each in taken for file in each.files)
    return Changes(taken[0].version, taken[-1].version, files, taken[-1].entry)


def next_copy(version: int, files: Sequence[TableFile], done: int, most_rows: int) -> SnapshotCopy:
    """Return the transaction that copies the next files of a snapshot, of which `done` are copied: one file at least."""
    rows, end = 0, done
    while end < len(files) and (end == done or rows + (files[end].rows or 0) <= most_rows):
        rows += files[end].rows or 0
        end += 1
    return SnapshotCopy(version, tuple(files[done:end]), end, end == len(files))
