"""A disk that writes down what SQLite does to it: each write, truncation, sync and deletion of a database's durable files.

The files are real ones; `Disk.connect` opens a database on them through a VFS of its own. `power_cut` rebuilds from
`Disk.record` what a power cut may have left. The WAL's index (`-shm`) is not durable and not recorded.

`Disk.before` is called before each step with its kind and the file's name: what it raises is the disk's answer
(`disk_full`, `sync_failed`), and as long as it does not return, the disk is busy.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from fogline.testing.apsw_connection import Connection

_numbers = count(1)
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_DURABLE = apsw.SQLITE_OPEN_MAIN_DB | _JOURNALS


class Kind(StrEnum):
    """What is done to a file. `SYNC_FOLDER`: the entries of the folder, not a file. `NOTE`: nothing; see `Disk.note`.

    `SYNC_FAILED`: as Linux has it, what was written before may never reach the disk, though every later sync succeeds.
    `BESIDE`: a file's whole content, written and synced by somebody else.
    """

    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    SYNC_FAILED = "sync failed"
    SYNC_FOLDER = "sync folder"
    DELETE = "delete"
    BESIDE = "beside"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done. `at`: where it was written, or the size that a file was cut to; bytes."""

    kind: Kind
    file: str = ""
    at: int = 0
    data: bytes = b""
    note: object = None


def disk_full() -> Exception:
    """To be raised by `Disk.before`: there is no room (ENOSPC)."""
    return _error(apsw.FullError("no space left on device"), apsw.SQLITE_FULL)


def quota_exceeded() -> Exception:
    """To be raised by `Disk.before` for a write: SQLite has no error of its own for EDQUOT."""
    return _error(apsw.IOError("disk quota exceeded"), apsw.SQLITE_IOERR_WRITE)


def sync_failed() -> Exception:
    """To be raised by `Disk.before`: what was written may be lost (EIO of fsync)."""
    return _error(apsw.IOError("input/output error"), apsw.SQLITE_IOERR_FSYNC)


def _error(error: apsw.Error, code: int) -> apsw.Error:
    error.extendedresult = code  # type: ignore[attr-defined]  # apsw gives it to SQLite
    return error


class Disk:
    """Records from its making on, in a folder without a database.

    `record`: every step, in order, but those that failed and did nothing. `name`: of its VFS.
    `beside`: a small file that somebody else writes and syncs.
    """

    def __init__(self, beside: Path | None = None) -> None:
        self.record: list[Step] = []
        self.before: Callable[[Kind, str], None] = lambda _kind, _file: None
        self._beside = beside
        self._beside_was = b""
        self.name = f"fogline-disk-{next(_numbers)}"
        self._vfs = _Vfs(self.name, self)

    def connect(self, path: Path) -> sqlite3.Connection:
        """Open the database at `path` on this disk: `connect` of `open_database`."""
        return Connection.open(path, self.name)

    def note(self, what: object) -> None:
        """Write down something that happened outside, in its place among the steps."""
        self.record.append(Step(Kind.NOTE, note=what))

    def ask(self, kind: Kind, file: str) -> None:
        """Whether a step may be done; raises what the disk answers."""
        if self._beside is not None and (now := self._beside.read_bytes()) != self._beside_was:
            self._beside_was = now
            self.record.append(Step(Kind.BESIDE, self._beside.name, data=now))
        self.before(kind, file)


class _Vfs(apsw.VFS):
    """The system's own, with notes. The folder's entries are synced where SQLite's own VFS for unix does it."""

    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._disk = disk
        self._known: set[str] = set()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        if name is None or not flags[0] & _DURABLE:
            return apsw.VFSFile("", name, flags)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        file = _File(name, flags, path.name, self._disk)
        if path.name not in self._known:  # an empty one may have been made by a reader that does not come this way
            self._known.add(path.name)
            self._disk.record.append(Step(Kind.CREATE, path.name))
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - SQLite's name
        name = Path(filename).name
        self._disk.ask(Kind.DELETE, name)
        super().xDelete(filename, syncdir)
        self._known.discard(name)
        self._disk.record.append(Step(Kind.DELETE, name))
        if syncdir:
            self._disk.record.append(Step(Kind.SYNC_FOLDER))


class _File(apsw.VFSFile):
    """One open file. A journal's first sync syncs its folder too."""

    def __init__(self, name: str | apsw.URIFilename, flags: list[int], short: str, disk: Disk) -> None:
        super().__init__("", name, flags)
        self._name = short
        self._disk = disk
        self._syncs_folder = bool(flags[0] & _JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        written = bytes(data)
        self._disk.ask(Kind.WRITE, self._name)
        super().xWrite(written, offset)
        self._disk.record.append(Step(Kind.WRITE, self._name, offset, written))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.ask(Kind.TRUNCATE, self._name)
        super().xTruncate(newsize)
        self._disk.record.append(Step(Kind.TRUNCATE, self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        try:
            self._disk.ask(Kind.SYNC, self._name)
            super().xSync(flags)
        except Exception:  # whatever it is: it is recorded, and raised on
            self._disk.record.append(Step(Kind.SYNC_FAILED, self._name))
            raise
        self._disk.record.append(Step(Kind.SYNC, self._name))
        if self._syncs_folder:
            self._syncs_folder = False
            self._disk.record.append(Step(Kind.SYNC_FOLDER))
