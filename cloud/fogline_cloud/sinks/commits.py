"""The entries of a Delta log, as values: which files a commit added, removed, or recorded changes in. Pure.

See the Delta protocol, "Actions", and "Change Data Files".
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

import msgspec

from fogline_cloud.sinks.position import digest


class Holds(StrEnum):
    """What the rows of a file are."""

    INSERTED = "inserted"
    DELETED = "deleted"
    CHANGES = "changes"
    """Each row says in `_change_type` what it is."""


class TableFile(msgspec.Struct, frozen=True):
    """A file with rows. `day`: its partition. `rows`: their number, None if the log does not say."""

    path: str
    size: int | None
    day: str | None
    rows: int | None = None
    holds: Holds = Holds.INSERTED


class TableCommit(msgspec.Struct, frozen=True):
    """One version of a table. `entry`: digest of its entry.

    `hides_rows`: a file has a deletion vector, so that the commit cannot be followed.
    """

    version: int
    files: tuple[TableFile, ...] = ()
    entry: str = ""
    at_ms: int | None = None
    hides_rows: bool = False

    @property
    def only_inserts(self) -> bool:
        """True if the commit removed no row."""
        return all(each.holds is Holds.INSERTED for each in self.files)

    @property
    def rows(self) -> int:
        """The number of rows, as far as the log says."""
        return sum(each.rows or 0 for each in self.files)


class _FileAction(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    size: int | None = None
    partition_values: Mapping[str, str | None] | None = None
    data_change: bool = True
    stats: str | None = None
    deletion_vector: Mapping[str, Any] | None = None


class _Info(msgspec.Struct, frozen=True):
    timestamp: int | None = None


class _Action(msgspec.Struct, frozen=True, rename="camel"):
    add: _FileAction | None = None
    remove: _FileAction | None = None
    cdc: _FileAction | None = None
    commit_info: _Info | None = None


class _Stats(msgspec.Struct, frozen=True, rename="camel"):
    num_records: int | None = None


_ACTION = msgspec.json.Decoder(_Action)


def decode(version: int, entry: bytes) -> TableCommit:
    """Return the entry of a version. If it records changes, its added and removed files say the same in another form."""
    actions = [_ACTION.decode(line) for line in entry.splitlines() if line.strip()]
    files = [
        *(_file(each.remove, Holds.DELETED) for each in actions if each.remove is not None and each.remove.data_change),
        *(_file(each.add, Holds.INSERTED) for each in actions if each.add is not None and each.add.data_change),
    ]
    changes = [_file(each.cdc, Holds.CHANGES) for each in actions if each.cdc is not None]
    moved = [file for each in actions for file in (each.add, each.remove) if file is not None]
    return TableCommit(
        version,
        tuple(changes or files),
        digest(entry),
        next((each.commit_info.timestamp for each in actions if each.commit_info is not None), None),
        any(each.deletion_vector is not None for each in moved),
    )


def _file(action: _FileAction, holds: Holds) -> TableFile:
    rows = msgspec.json.decode(action.stats, type=_Stats).num_records if action.stats else None
    return TableFile(unquote(action.path), action.size, (action.partition_values or {}).get("day"), rows, holds)
