"""The file of events that rules kept back, for people who want to look: beside the outbox, and never at its cost.

It is written after the commit of the events, and synced by SQLite's checkpoints only. So a kill may cost the events of the last
transaction, and a power cut those of the last minutes; the counts by rule and the aggregates have them all the same. Whatever
fails here, no acknowledgement waits for it.
"""

import contextlib
import logging
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fogline.errors import Misconfigured

NAME = "history.db"
PAGE_BYTES = 4096
LOOKS_EVERY_S = 60
"""Time between two looks at what is over age, in seconds."""
ROW_BYTES = 200
"""The most that a row takes beside its body, with its places in the indexes."""
TRIMMED_SHARE, FULL_SHARE = 10, 0.9
"""A tenth of the events, the oldest, is deleted before more than this share of the pages is in use."""
_TABLES = (
    """CREATE TABLE IF NOT EXISTS event (
        number INTEGER PRIMARY KEY, device TEXT NOT NULL, at_ms INTEGER NOT NULL, until_s INTEGER NOT NULL,
        body BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS event_device ON event (device, at_ms)",
    "CREATE INDEX IF NOT EXISTS event_until ON event (until_s)",
    "CREATE TABLE IF NOT EXISTS meta (forgotten INTEGER NOT NULL)",
    "INSERT INTO meta SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM meta)",
)

_log = logging.getLogger("fogline.history")


class KeptEvent(NamedTuple):
    """An event that a rule kept back. `until_s`: the gateway's age at which it is deleted. `body`: its JSON."""

    device: str
    at_ms: int
    until_s: int
    body: bytes


class HistoryFile:
    """Used on the writer's thread. `forgotten` in the file: events that were deleted early, because the file was full."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._path = folder / NAME
        self._max_pages = max_bytes // PAGE_BYTES
        self._next_look_s = 0
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = self._open()
        except sqlite3.Error as error:
            _log.error("the history %s cannot be used, and begins anew: %s", self._path, error)
            with contextlib.suppress(sqlite3.Error, OSError):
                for suffix in ("", "-wal", "-shm"):
                    self._path.with_name(NAME + suffix).unlink(missing_ok=True)
                self._connection = self._open()

    def add(self, events: Sequence[KeptEvent], age_s: int) -> None:
        """Add events. An error is logged, and costs these events."""
        if self._connection is None:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            rows = [(each.device, each.at_ms, each.until_s, zlib.compress(each.body, 1)) for each in events]
            if age_s >= self._next_look_s:
                self._next_look_s = age_s + LOOKS_EVERY_S
                self._connection.execute("DELETE FROM event WHERE until_s <= ?", (age_s,))
            self._make_room(self._connection, sum(len(body) + ROW_BYTES for _, _, _, body in rows))
            self._connection.executemany("INSERT INTO event (device, at_ms, until_s, body) VALUES (?, ?, ?, ?)", rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            _log.warning("the history lacks %d events: %s", len(events), error, extra={"reason": "history"})
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.execute(f"PRAGMA max_page_count = {self._max_pages}")
        for each in _TABLES:
            connection.execute(each)
        return connection

    def _make_room(self, connection: sqlite3.Connection, wanted_bytes: int) -> None:
        """Delete the oldest events until there is room for so many bytes."""
        most = self._max_pages * FULL_SHARE - wanted_bytes / PAGE_BYTES
        while _used_pages(connection) > most:
            oldest, newest = connection.execute("SELECT min(number), max(number) FROM event").fetchone()
            if oldest is None:
                return
            last = oldest + (newest - oldest) // TRIMMED_SHARE
            deleted = connection.execute("DELETE FROM event WHERE number <= ?", (last,)).rowcount
            connection.execute("UPDATE meta SET forgotten = forgotten + ?", (deleted,))


def _used_pages(connection: sqlite3.Connection) -> int:
    (pages,), (free,) = (connection.execute(f"PRAGMA {each}").fetchone() for each in ("page_count", "freelist_count"))
    return int(pages) - int(free)


@contextlib.contextmanager
def reading_history(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the file to read; None without one. Errors of SQLite in the block become `Misconfigured`."""
    path = folder / NAME
    if not path.exists():
        yield None
        return
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise Misconfigured(f"the history {path} cannot be read: {error}") from None


def read_history(folder: Path, device: str, since_ms: int, until_ms: int, limit: int) -> list[KeptEvent]:
    """Return the kept events of a device from `since_ms` on and before `until_ms`, the oldest first. Raises `Misconfigured`."""
    span = "device = ? AND at_ms >= ? AND at_ms < ? ORDER BY at_ms, number LIMIT ?"
    query = f"SELECT device, at_ms, until_s, body FROM event WHERE {span}"  # noqa: S608 - our own words
    with reading_history(folder) as connection:
        if connection is None:
            return []
        rows = connection.execute(query, (device, since_ms, until_ms, limit)).fetchall()
        return [KeptEvent(of, at_ms, until_s, unpack_event(body)) for of, at_ms, until_s, body in rows]


def unpack_event(body: bytes) -> bytes:
    """Return the JSON of a kept event. Raises `sqlite3.DatabaseError` if it is damaged."""
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise sqlite3.DatabaseError(str(error)) from None


def history_state(folder: Path) -> dict[str, Any] | None:
    """Return the number of kept events and of those that were deleted early; None without a history. Raises `Misconfigured`."""
    with reading_history(folder) as connection:
        if connection is None:
            return None
        events, forgotten = connection.execute("SELECT (SELECT count(*) FROM event), forgotten FROM meta").fetchone()
    return {"events": events, "forgotten": forgotten, "bytes": (folder / NAME).stat().st_size}
