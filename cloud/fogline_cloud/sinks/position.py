"""What a sink has written, as its database keeps it in the table `fogline_sinks`. Pure."""

from hashlib import sha256

import msgspec

TABLE = "fogline_sinks"
COMPLETE = -1
"""Number of copied files of a sink that has the whole snapshot, and follows the versions after it."""


class Position(msgspec.Struct, frozen=True):
    """The position of one sink.

    `target`: its table in the database. `table_id`: id of the Delta table, "" before the first transaction. `version`: the
    version that the target equals; if `files` is not `COMPLETE`, so many files of that version. `entry`: digest of the log's
    entry of that version.
    """

    target: str
    table_id: str
    version: int
    files: int
    entry: str


NOTHING = Position("", "", -1, COMPLETE, "")
COLUMNS = Position.__struct_fields__


def digest(entry: bytes | None) -> str:
    """Return the digest of a log's entry, "" if the log does not have it any more."""
    return "" if entry is None else sha256(entry).hexdigest()


def mismatch(position: Position, target: str, table_id: str, entry: bytes | None) -> str:
    """Return why the position does not belong to the table as it is now, "" if it does. `entry`: of the position's version."""
    if position == NOTHING:
        return "nothing is copied yet"
    if position.target != target:
        return f"the former target was {position.target}"
    if position.table_id != table_id:
        return "the Delta table is another one"
    if position.entry and entry is not None and digest(entry) != position.entry:
        return f"version {position.version} of the Delta table is another one now"
    return ""
