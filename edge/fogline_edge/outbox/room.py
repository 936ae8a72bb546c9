"""Room on the disk: which errors say that there is none.

SQLite says `SQLITE_FULL` only when a write ends with ENOSPC. A quota that is used up (EDQUOT) is an I/O error to it, and
so is a sync that finds no room. After such an error the folder itself is asked, by writing a file.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fogline.errors import Misconfigured

PROBE_BYTES = 1024 * 1024
"""Less room than this counts as none."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRITING = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
"""Errors after which nothing but the transaction is lost. After a sync that failed, nobody knows what the disk has."""


class NoRoom(Misconfigured):
    """The disk is full, or this user's quota of it. It may have room later."""


def may_wait(error: sqlite3.Error, folder: Path) -> bool:
    """Return True if a transaction failed only because there was no room, so that it can be tried again later."""
    code = getattr(error, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or (code in _WRITING and not _has_room(folder))


@contextlib.contextmanager
def opening(folder: Path) -> Iterator[None]:
    """Raise `NoRoom` for any error that comes of a disk without room."""
    try:
        yield
    except (OSError, sqlite3.Error, Misconfigured) as error:
        cause = error.__cause__ if isinstance(error, Misconfigured) else error
        full = getattr(cause, "errno", None) in _NO_ROOM or getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        if full or (isinstance(cause, sqlite3.OperationalError) and not _has_room(folder)):
            why = "the disk, or this user's quota of it, is full; check the folder's free space"
            raise NoRoom(f"the outbox in {folder} cannot be opened: {why}") from error
        raise


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
