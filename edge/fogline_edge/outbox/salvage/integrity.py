"""Checks the outbox's file before it is opened, without changing it.

After a clean end the check is cheap: the file opens, the rows that the start needs are readable, and each stream's rows begin
and end where its state says. After any other end (a kill, a power cut, a failure) it also checks the log's checksums, runs
SQLite's `quick_check`, and counts the rows. That takes at most `CHECK_S`, so that a large file on a slow disk does not delay
the start. If the process was killed and the machine has not booted since, the kernel has kept every write, so the file is as
sound as it was while it was in use: the check then takes at most `KILLED_CHECK_S`, because devices wait. Damage that is found
later ends the process and marks the folder, and the next start salvages the file.
"""

import logging
import sqlite3
import time
from pathlib import Path
from typing import Any

from fogline_edge.outbox.file.age import boot_of_last_run
from fogline_edge.outbox.file.data_folder import RunEnd
from fogline_edge.outbox.file.free_space import is_damage
from fogline_edge.outbox.file.pages import Cell
from fogline_edge.outbox.rows.streams import event_place
from fogline_edge.outbox.salvage.carving import log_is_broken, table_of
from fogline_edge.outbox.salvage.salvage import LOG_MISSING

CHECK_S = 4.0
"""Time limit of the thorough check, in seconds."""
KILLED_CHECK_S = 0.1
"""Limit of its CPU time after a kill within the same boot, in seconds: enough for some 40 MB."""
_STEPS = 1000
_log = logging.getLogger("fogline.outbox")


def examine(path: Path, *, last: RunEnd, owner: str | None, boot_id: str = "") -> str | None:
    """Return the reason to salvage the file at `path`, or None if it is sound.

    `last`: the end of the last run. `owner`: the gateway that has run here, if any; then the file must hold something.
    `boot_id`: of the machine's present boot; without it, the last run may have been in another boot.
    """
    log = path.with_name(path.name + "-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    if not path.exists():
        return "the file is missing, its log is there" if log_bytes else None
    if not path.stat().st_size and (owner or log_bytes):
        return "the file is empty"
    if owner and last is RunEnd.OPEN and not log_bytes:
        return LOG_MISSING
    thorough = last is not RunEnd.CLOSING or log_bytes > 0
    if thorough and log_is_broken(log):
        return "its log is damaged"
    try:
        return _look(path, owner, thorough=thorough, killed_in=boot_id if last is RunEnd.OPEN else "")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error) if is_damage(error) else None


def _look(path: Path, owner: str | None, *, thorough: bool, killed_in: str) -> str | None:
    connection = sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True, isolation_level=None)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
        if owner is not None and not {"meta", "stream", "event"} <= tables:
            return "it holds no outbox any more"
        why = _read(connection, tables, owner)
        if why or not thorough:
            return why
        killed = bool(killed_in) and "meta" in tables and boot_of_last_run(connection) == killed_in
        return _look_closely(connection, tables, cpu_s=KILLED_CHECK_S if killed else CHECK_S)
    finally:
        connection.close()


_START = {
    "meta": "SELECT 1, key, value FROM meta",
    "kept": "SELECT 0, key, value FROM kept",
    "stream": "SELECT number, * FROM stream",
    "resend": "SELECT number, NULL, entries FROM resend",
    "command": "SELECT number, NULL, id, device, name, content_type, data, reply, durable, idempotent, correlation, boot,"
    " deadline_ms, digest, state, changed_s, status, answer_digest FROM command WHERE state IN ('QUEUED', 'SENDING')",
}
"""The rows that every start reads: the row id (0 if the table has none), and the values in the file's order."""
_ENDS = """
SELECT (SELECT min(place) FROM event WHERE place > :begin AND place < :end) - :begin,
       (SELECT max(place) FROM event WHERE place > :begin AND place < :end) - :begin
"""


_UNSAVED = "SELECT commit_id, message FROM event WHERE place > ? AND place < ?"
_COUNT = "SELECT count(*), max(place) FROM event WHERE place > ? AND place < ?"


def _read(connection: sqlite3.Connection, tables: set[str], owner: str | None) -> str | None:
    """Return the first contradiction in the rows that every start reads, or None."""
    for table, query in _START.items():
        for number, *values in connection.execute(query).fetchall() if table in tables else ():
            if table_of(Cell(0, number or 0, tuple(values))) != table:
                return f"a row of {table} makes no sense"
            if owner is not None and table == "meta" and values[0] == "gateway" and values[1] != owner:
                return f"it says that it belongs to gateway {values[1]}, which it does not"
    for number, name, head, first in _streams(connection, tables):
        span = {"begin": event_place(number, 0), "end": event_place(number + 1, 0)}
        begin, end = connection.execute(_ENDS, span).fetchone()
        connection.execute(_UNSAVED, (span["begin"] + head, span["end"])).fetchall()
        if (begin or first) != first or (end or first - 1) < head:
            return f"stream {name} has rows {begin} to {end}, not {first} to {head} or more"
    return None


def _streams(connection: sqlite3.Connection, tables: set[str]) -> list[Any]:
    """Return number, name and saved head of each stream, and its first row: after the settled ones, or the gap record."""
    first = "SELECT number, stream, head, max(settled + 1, dropped_upto) FROM stream"
    return connection.execute(first).fetchall() if {"stream", "event"} <= tables else []


def _look_closely(connection: sqlite3.Connection, tables: set[str], cpu_s: float) -> str | None:
    """Return the first defect that `quick_check` or a count of the rows finds, or None.

    It is stopped after `CHECK_S`, and after `cpu_s` of CPU time: how fast a disk or a busy machine is must not matter to a
    limit that is short.
    """
    began, began_cpu = time.monotonic(), time.thread_time()

    def is_over() -> int:
        return int(time.thread_time() - began_cpu > cpu_s or time.monotonic() - began > CHECK_S)

    connection.set_progress_handler(is_over, _STEPS)
    try:
        (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            return str(said).replace("\n", " ")
        for number, name, _, first in _streams(connection, tables):
            span = event_place(number, 0), event_place(number + 1, 0)
            rows, last = connection.execute(_COUNT, span).fetchone()
            if rows and rows != last - span[0] - first + 1:
                return f"stream {name} has {rows} rows from {first} to {last - span[0]}"
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        took_s = time.monotonic() - began
        _log.warning("the check of the outbox was stopped after %.1f s; damage in the rest is found when it is read", took_s)
    return None
