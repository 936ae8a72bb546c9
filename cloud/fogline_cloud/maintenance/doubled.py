"""Undoes a compaction of files whose rows another compaction had moved already: its rows would be in the table twice.

delta-rs 1.6 does not refuse such a commit: a compaction changes no row, so it repeats it on the newer version (Delta protocol,
`dataChange`). Two maintenance runs at once do this, and a user's OPTIMIZE beside one.
"""

import logging
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from fogline_cloud.maintenance.table import HOOK, MaintainedTable

RECENT = 100
"""Number of the newest versions that each maintenance run looks at: a former one may have been killed before it could undo."""
log = logging.getLogger(__name__)


class Compacted(msgspec.Struct, frozen=True):
    """A commit that removed files which were removed already. `again`: these. `alone`: files that only it removed."""

    version: int
    added: tuple[str, ...]
    again: tuple[str, ...]
    alone: tuple[str, ...]


def doubled(entries: Iterable[tuple[int, bytes]]) -> list[Compacted]:
    """Return the commits among these entries of a log, in order, that moved rows which an earlier one of them had moved."""
    gone: set[str] = set()
    found = []
    for version, content in entries:
        actions = [msgspec.json.decode(line) for line in content.splitlines() if line.strip()]
        added = tuple(each["add"]["path"] for each in actions if "add" in each)
        removed = [each["remove"]["path"] for each in actions if "remove" in each]
        if again := tuple(path for path in removed if path in gone):
            found.append(Compacted(version, added, again, tuple(path for path in removed if path not in gone)))
        gone = (gone | {*removed}) - {*added}
    return found


def undo_doubled(table: MaintainedTable, after: int) -> int:
    """Undo such commits after a version. Returns their number."""
    newest = table.table.version()
    entries = [(version, content) for version in range(after + 1, newest + 1) if (content := table.entry(version)) is not None]
    undone = 0
    for each in doubled(entries):
        undone += table.retried(lambda each=each: _undo(table, each))  # type: ignore[misc]  # mypy loses the type of a default
    return undone


def _undo(table: MaintainedTable, commit: Compacted) -> int:
    live = {row["path"]: row for row in _files(table.table)}
    extra = [live[path] for path in commit.added if path in live]
    if not extra:
        return 0
    log.warning(
        "%s: version %d wrote rows again that another compaction had moved to other files: undoing it",
        *(table.folder.path, commit.version),
    )
    before = DeltaTable(table.folder.uri, commit.version - 1, storage_options=table.folder.storage)
    lost = [row for row in _files(before) if row["path"] in commit.alone and row["path"] not in live]
    now_ms = int(time.time() * 1000)
    table.table.create_write_transaction(
        [
            *(RemoveAction(row["path"], False, now_ms, row["size_bytes"], _day(row)) for row in extra),
            *(AddAction(row["path"], row["size_bytes"], _day(row), now_ms, False, _stats(row)) for row in lost),
        ],
        mode="append",
        schema=table.table.schema(),
        partition_by=["day"],
        post_commithook_properties=HOOK,
    )
    return 1


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found


def _day(row: dict[str, Any]) -> dict[str, str | None]:
    return {"day": row["partition.day"].isoformat()}


def _stats(row: dict[str, Any]) -> str:
    return msgspec.json.encode({"numRecords": row["num_records"]}).decode()
