"""The gateway's data folder: one process at a time, and always the same gateway.

Its file `lock` also says how the last run ended, and whose the folder is: eight characters, then tenant and gateway.
"""

import fcntl
import os
import sqlite3
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fogline.errors import Misconfigured
from fogline.event import rfc3339
from fogline_edge.boot import Clock
from fogline_edge.outbox.queries import SQL

_WIDTH = 8


class Ending(StrEnum):
    """How the last run ended. `CLOSING`: in order, or nobody has run here. `FAILED`: what it asked of the disk failed.

    Noted before the file is closed, since that removes the log.
    """

    OPEN = "open"
    CLOSING = "closing"
    FAILED = "failed"
    DAMAGED = "damaged"


class Last(NamedTuple):
    """The last run, and whose the folder is, if anybody has run here."""

    how: Ending
    owner: str | None


def foreign(folder: Path, owner: str, name: str) -> Misconfigured:
    """The error of a gateway that has got the folder of another one."""
    return Misconfigured(f"data folder {folder} belongs to gateway {owner}, not {name}: give this one its own `data`")


class Folder:
    """The folder at `path`, locked for this process until `close`. `name`: tenant and gateway. Raises `Misconfigured`."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self._lock = _locked(path)

    def last(self) -> Last:
        """What the last run left."""
        text = os.pread(self._lock, 1024, 0).decode("utf-8", "replace")
        how, owner = text[:_WIDTH].strip(), text[_WIDTH:].strip()
        return Last(Ending(how) if how in frozenset(Ending) else Ending.CLOSING, owner or None)

    def note(self, how: Ending) -> None:
        """Durably note how this run stands. May be called from any thread."""
        data = f"{how:<{_WIDTH}}{self.name}\n".encode()
        os.pwrite(self._lock, data, 0)
        os.ftruncate(self._lock, len(data))
        os.fsync(self._lock)

    def close(self) -> None:
        """Let others have it."""
        os.close(self._lock)


def _locked(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misconfigured(
            f"data folder {folder} cannot be used: {error.strerror}; choose one that this user may write"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise Misconfigured(
            f"data folder {folder} is in use by another gateway: stop it, or give this one its own `data`"
        ) from None
    return lock


def note_start(connection: sqlite3.Connection, clock: Clock) -> None:
    """Write when this run began, so that the log is never empty while the file is in use: if it is, it was lost."""
    connection.execute(SQL["set_meta"], ("started", rfc3339(clock.time_ns())))


def check_owner(connection: sqlite3.Connection, folder: Folder) -> None:
    """The rows carry their gateway's name: a renamed gateway needs a new folder. Raises `Misconfigured`."""
    row = connection.execute(SQL["get_meta"], ("gateway",)).fetchone()
    if row is None:
        connection.execute(SQL["set_meta"], ("gateway", folder.name))
    elif row[0] != folder.name:
        raise foreign(folder.path, row[0], folder.name)
