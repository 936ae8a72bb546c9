"""The gateway's data folder: one process at a time, and always the same gateway.

The file `lock` in it also records how the last run ended, in eight characters, and then the tenant and the gateway.
"""

import fcntl
import os
import secrets
import sqlite3
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from fogline.errors import Misconfigured
from fogline.events.event import rfc3339
from fogline_edge.machine.boot import Clock
from fogline_edge.outbox.file.queries import SQL

FILE = "outbox.db"
_WIDTH = 8


class RunEnd(StrEnum):
    """The end of the last run. `CLOSING`: in order, or there was no run. `FAILED`: a disk operation failed.

    A run records it before it closes the file, because closing removes the log.
    """

    OPEN = "open"
    CLOSING = "closing"
    FAILED = "failed"
    DAMAGED = "damaged"


class LastRun(NamedTuple):
    """The end of the last run, and the gateway that owns the folder if there was one."""

    how: RunEnd
    owner: str | None


def foreign(folder: Path, owner: str, name: str) -> Misconfigured:
    """Return the error for a gateway that uses the folder of another one."""
    return Misconfigured(f"data folder {folder} belongs to gateway {owner}, not {name}: give this one its own `data`")


class DataFolder:
    """The folder at `path`, locked for this process until `close`. `name`: tenant and gateway. Raises `Misconfigured`."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self._lock = _locked(path)

    def last(self) -> LastRun:
        """Return the record of the last run."""
        text = os.pread(self._lock, 1024, 0).decode("utf-8", "replace")
        how, owner = text[:_WIDTH].strip(), text[_WIDTH:].strip()
        return LastRun(RunEnd(how) if how in frozenset(RunEnd) else RunEnd.CLOSING, owner or None)

    def note(self, how: RunEnd) -> None:
        """Durably record the state of this run. Any thread may call it."""
        data = f"{how:<{_WIDTH}}{self.name}\n".encode()
        os.pwrite(self._lock, data, 0)
        os.ftruncate(self._lock, len(data))
        os.fsync(self._lock)

    def close(self) -> None:
        """Release the folder."""
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
            f"data folder {folder} is in use by another fogline-edge process: stop it, or give this gateway its own `data`"
        ) from None
    return lock


def note_start(connection: sqlite3.Connection, clock: Clock) -> None:
    """Write the start time of this run. So the log is never empty while the file is in use, and an empty one was lost."""
    connection.execute(SQL["set_meta"], ("started", rfc3339(clock.time_ns())))


def check_owner(connection: sqlite3.Connection, folder: DataFolder) -> None:
    """Raise `Misconfigured` if the rows belong to another gateway: a renamed gateway needs a new folder."""
    row = connection.execute(SQL["get_meta"], ("gateway",)).fetchone()
    if row is None:
        connection.execute(SQL["set_meta"], ("gateway", folder.name))
    elif row[0] != folder.name:
        raise foreign(folder.path, row[0], folder.name)


def journal_name(connection: sqlite3.Connection) -> str:
    """Return the random name of the file's journal of commands, and make it if the file has none (see `Hello.journal`)."""
    row = connection.execute(SQL["get_meta"], ("journal",)).fetchone()
    if row is not None:
        return str(row[0])
    name = secrets.token_hex(8)
    connection.execute(SQL["set_meta"], ("journal", name))
    return name


def forget_journal_name(connection: sqlite3.Connection) -> None:
    """Let the next start give the journal a new name: the file is a copy, and the journal of the original may go on."""
    connection.execute(SQL["drop_meta"], ("journal",))


def write_again(path: Path) -> None:
    """Have the disk keep a file after a failed sync, by writing all of its bytes in place.

    Linux counts the pages of a failed sync as clean, so another sync alone does not write them.
    """
    with path.open("r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
