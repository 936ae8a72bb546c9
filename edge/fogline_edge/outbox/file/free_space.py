"""Free room in the file and on the disk, and the errors that mean a full disk or a damaged file.

SQLite returns `SQLITE_FULL` only if a write ends with ENOSPC. For an exhausted quota (EDQUOT), and for a sync without room, it
returns an I/O error. After such an error a probe file shows whether the folder has room.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fogline.errors import Misconfigured
from fogline_edge.machine.health import free_bytes

PROBE_BYTES = 1024 * 1024
"""The room that a folder must have, in bytes."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRITING = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""Errors that lose only the transaction. After a failed sync nobody knows what the disk holds, so that one is not here."""


class NoRoom(Misconfigured):
    """The disk is full, or this user's quota of it. It may have room later."""


def may_wait(error: sqlite3.Error, folder: Path) -> bool:
    """Return True if a transaction failed only because there was no room, so that it can be tried again later."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or (code in _WRITING and not _has_room(folder))


@contextlib.contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Raise `NoRoom` for any error that a full disk causes."""
    try:
        yield
    except (OSError, sqlite3.Error, Misconfigured) as error:
        cause = error.__cause__ if isinstance(error, Misconfigured) else error
        full = getattr(cause, "errno", None) in _NO_ROOM or getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        if full or (isinstance(cause, sqlite3.OperationalError) and not _has_room(folder)):
            why = "the disk, or this user's quota of it, is full; check the folder's free space"
            raise NoRoom(f"the outbox in {folder} cannot be opened: {why}") from error
        raise


def disk_is_full(folder: Path, wanted_bytes: int) -> bool:
    """Return True if the disk, or this user's quota of it, has not got as many bytes for the folder, nor `PROBE_BYTES`."""
    free = free_bytes(folder)
    return (free is not None and free < wanted_bytes) or not _has_room(folder)


def _has_room(folder: Path) -> bool:
    """Return False if a file of `PROBE_BYTES` finds no room in the folder."""
    probe = folder / "room.probe"
    try:
        with probe.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno not in _NO_ROOM
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return True


def used_pages(connection: sqlite3.Connection) -> int:
    """Return the number of pages of the file that are in use."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(pages) - int(free)


_ENVIRONMENT = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_AUTH,
    }
)
_READING = frozenset({sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})


def is_damage(error: BaseException) -> bool:
    """Return True if this error, or its cause, means that the file is damaged."""
    if isinstance(error.__cause__, sqlite3.Error):
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return True
    if not isinstance(error, sqlite3.Error):
        return False
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is None or code in _READING or code & 0xFF not in _ENVIRONMENT
