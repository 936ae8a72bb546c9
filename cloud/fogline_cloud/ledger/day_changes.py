"""Decides which files of a day must be read after earlier ones were: a commit may add, compact or replace them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class FileChange(msgspec.Struct, frozen=True):
    """One file that a commit added or removed. `changes_rows`: False for a compaction (`dataChange` of the Delta protocol)."""

    path: str
    changes_rows: bool = True


class Commit(msgspec.Struct, frozen=True):
    """The files of one commit."""

    added: list[FileChange] = []
    removed: list[FileChange] = []


class DayPlan(msgspec.Struct, frozen=True):
    """Files to read. `why`: why all of the day are read again; empty if only new ones are. `compacted`: counts must agree."""

    paths: list[str]
    why: str = ""
    compacted: bool = False


def plan_day(known: Mapping[str, int], present: Mapping[str, int], commits: Iterable[Commit] | None) -> DayPlan:
    """Return what to read of one day of one table.

    `known`, `present`: sizes of the files that were read, and of those of the present version. `commits`: those between the
    two versions, `None` if the log does not have all of them any more.
    """
    counted = {path for path, size in known.items() if present.get(path, size) == size}
    if len(counted) < len(known):
        return DayPlan(sorted(present), "a file has another size")
    if counted <= present.keys():
        return DayPlan(sorted(present.keys() - counted))
    if commits is None:
        return DayPlan(sorted(present), "the log does not say any more why files are gone")
    waiting: set[str] = set()  # compacted together with counted files, before they were read
    for commit in commits:
        if any(each.changes_rows and each.path in (counted | waiting) for each in commit.removed):
            return DayPlan(sorted(present), "rows were replaced or deleted")
        joined = {each.path for each in commit.removed if not each.changes_rows}
        if joined & counted:
            waiting |= joined - counted
            counted = (counted - joined) | {each.path for each in commit.added if not each.changes_rows}
    if not counted <= present.keys():
        return DayPlan(sorted(present), "files are gone without a commit")
    return DayPlan(sorted((present.keys() - counted) | waiting), compacted=True)


def commit_of(lines: Iterable[bytes]) -> dict[str, Commit]:
    """Return the files of a log entry by day. Raises `msgspec.DecodeError` if it is not one."""
    found: dict[str, Commit] = {}
    for line in lines:
        action = _DECODER.decode(line)
        for kind, change in (("added", action.add), ("removed", action.remove)):
            if change is not None:
                day = (change.partition_values or {}).get("day") or ""
                getattr(found.setdefault(day, Commit([], [])), kind).append(FileChange(change.path, change.data_change))
    return found


class _Change(msgspec.Struct, rename="camel"):
    path: str
    data_change: bool = True
    partition_values: dict[str, Any] | None = None


class _Action(msgspec.Struct):
    add: _Change | None = None
    remove: _Change | None = None


_DECODER = msgspec.json.Decoder(_Action)
