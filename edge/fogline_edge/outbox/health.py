"""Is the outbox's file sound? Looked at before it is opened, without changing it.

After a clean end, only what costs nothing: that it opens, that what the start needs can be read, and that each stream's rows
begin and end where it says. After any other end (a kill, a power cut, a failure) also the log's checksums, SQLite's
`quick_check`, and that no row is missing, for `CHECK_S` at most: a large file on a slow disk must not hold up the start, and
whatever is met later ends the process with a mark, so that the next start salvages without looking.
"""

import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

from fogline_edge.outbox.carving import log_is_broken, table_of
from fogline_edge.outbox.damage import is_damage
from fogline_edge.outbox.folder import Ending
from fogline_edge.outbox.pages import Cell
from fogline_edge.outbox.salvage import LOG_MISSING

CHECK_S = 4.0
"""How long the thorough look may take."""
_STEPS = 10_000
_log = logging.getLogger("fogline.outbox")


def examine(path: Path, *, last: Ending, owner: str | None) -> str | None:
    """Why the file at `path` has to be salvaged, `None` if it need not be.

    `last`: how the last run ended. `owner`: whose it is, if a gateway has run here; so there must be something.
    """
    log = path.with_name(path.name + "-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    if not path.exists():
        return "the file is missing, its log is there" if log_bytes else None
    if not path.stat().st_size and (owner or log_bytes):
        return "the file is empty"
    if owner and last is Ending.OPEN and not log_bytes:
        return LOG_MISSING
    thorough = last is not Ending.CLOSING or log_bytes > 0
    if thorough and log_is_broken(log):
        return "its log is damaged"
    try:
        return _look(path, owner, thorough=thorough)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error) if is_damage(error) else None


def _look(path: Path, owner: str | None, *, thorough: bool) -> str | None:
    connection = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True, isolation_level=None)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
        if owner is not None and not {"meta", "stream", "event"} <= tables:
            return "it holds no outbox any more"
        why = _read(connection, tables, owner)
        return why or (_look_closely(connection, tables) if thorough else None)
    finally:
        connection.close()


_START = {
    "meta": "SELECT 1, key, value FROM meta",
    "kept": "SELECT 0, key, value FROM kept",
    "stream": "SELECT number, NULL, stream, lane, open, head, chain, settled, settled_chain, acknowledged, stored, duplicate,"
    " dead, sent, settled_events, quarantined, reason FROM stream",
    "command": "SELECT number, NULL, id, device, name, content_type, data, reply, durable, idempotent, correlation, boot,"
    " deadline_ms, digest, state, changed_s, status, answer_digest FROM command WHERE state IN ('QUEUED', 'SENDING')",
}
"""What every start reads: the row's number (0 where there is none), and the row as the file has it."""
_ENDS = """
SELECT (SELECT min(sequence) FROM event WHERE stream = :number), (SELECT max(sequence) FROM event WHERE stream = :number)
"""


def _read(connection: sqlite3.Connection, tables: set[str], owner: str | None) -> str | None:
    """What every start reads has to make sense."""
    for table, query in _START.items():
        for number, *values in connection.execute(query).fetchall() if table in tables else ():
            if table_of(Cell(0, number, tuple(values))) != table:
                return f"a row of {table} makes no sense"
            if owner is not None and table == "meta" and values[0] == "gateway" and values[1] != owner:
                return f"it says that it belongs to gateway {values[1]}, which it does not"
    for number, name, head, first in _streams(connection, tables):
        ends = connection.execute(_ENDS, {"number": number}).fetchone()
        if ends != ((first, head) if head >= first else (None, None)):
            return f"stream {name} has rows {ends[0]} to {ends[1]}, not {first} to {head}"
    return None


def _streams(connection: sqlite3.Connection, tables: set[str]) -> list[Any]:
    """Number, name, head of each, and where its rows begin: after what is settled, or with what stands for what was dropped."""
    both = {"stream", "event"} <= tables
    dropped = "SELECT coalesce(max(upto), 0) FROM dropped WHERE dropped.stream = number" if "dropped" in tables else "0"
    first = f"SELECT number, stream, head, max(settled + 1, ({dropped})) FROM stream"  # noqa: S608 - our own names
    return connection.execute(first).fetchall() if both else []


def _look_closely(connection: sqlite3.Connection, tables: set[str]) -> str | None:
    """As closely as `CHECK_S` allows."""
    until = time.monotonic() + CHECK_S
    connection.set_progress_handler(lambda: int(time.monotonic() > until), _STEPS)
    try:
        (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            return str(said).replace("\n", " ")
        for number, name, head, first in _streams(connection, tables):
            (rows,) = connection.execute("SELECT count(*) FROM event WHERE stream = ?", (number,)).fetchone()
            if rows != head - first + 1:
                return f"stream {name} has {rows} rows, not {head - first + 1}"
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        _log.warning("the outbox was not looked at to its end: it took longer than %.0f s", CHECK_S)
    return None
