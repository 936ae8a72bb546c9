"""Disk that records each write, truncation, sync and deletion that SQLite does to the durable files of a database.

The files are real; `Disk.connect` opens a database through a VFS of its own. `power_cut` rebuilds the states that a power
cut may leave from `Disk.record`. The WAL's index (`-shm`) is not durable and not recorded.

`Disk.before` is called before each step with its kind and the file's name. Its exception becomes the disk's error
(`disk_full`, `sync_failed`); while it blocks, the disk is busy.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from fogline_lab.apsw_connection import ApswConnection

_numbers = count(1)
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_DURABLE = apsw.SQLITE_OPEN_MAIN_DB | _JOURNALS


class DiskOperation(StrEnum):
    """Operation on a file. `SYNC_FOLDER`: syncs the entries of the folder, not a file. `NOTE`: none; see `Disk.note`.

    `SYNC_FAILED`: on Linux, earlier writes may never reach the disk after it, though every later sync succeeds.
    `BESIDE`: the whole content of a file that another program wrote and synced.
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
    """One operation. `at`: offset of a write, or size after a truncation, in bytes."""

    kind: DiskOperation
    file: str = ""
    at: int = 0
    data: bytes = b""
    note: object = None


def disk_full() -> Exception:
    """Return the error for a full disk (ENOSPC), to raise in `Disk.before`."""
    return _error(apsw.FullError("no space left on device"), apsw.SQLITE_FULL)


def quota_exceeded() -> Exception:
    """Return the error for an exceeded quota, to raise for a write. SQLite has no error of its own for EDQUOT."""
    return _error(apsw.IOError("disk quota exceeded"), apsw.SQLITE_IOERR_WRITE)


def sync_failed() -> Exception:
    """Return the error of a failed sync (EIO of fsync), after which earlier writes may be lost."""
    return _error(apsw.IOError("input/output error"), apsw.SQLITE_IOERR_FSYNC)


def _error(error: apsw.Error, code: int) -> apsw.Error:
    error.extendedresult = code  # type: ignore[attr-defined]  # apsw gives it to SQLite
    return error


class Disk:
    """Recording disk, for a folder without a database yet.

    `record`: every step, in order, except those that failed without effect. `name`: of its VFS.
    `beside`: a small file that another program writes and syncs.
    """

    def __init__(self, beside: Path | None = None) -> None:
        self.record: list[Step] = []
        self.before: Callable[[DiskOperation, str], None] = lambda _kind, _file: None
        self._beside = beside
        self._beside_was = b""
        self.name = f"fogline-disk-{next(_numbers)}"
        self._vfs = _Vfs(self.name, self)

    def connect(self, path: Path) -> sqlite3.Connection:
        """Open the database at `path` on this disk: `connect` of `open_database`."""
        return ApswConnection.open(path, self.name)

    def note(self, what: object) -> None:
        """Record an event outside the disk, in order with the steps."""
        self.record.append(Step(DiskOperation.NOTE, note=what))

    def write_again(self, path: Path) -> None:
        """Write and sync a whole file in place, as a gateway does with its log after a failed sync."""
        content = path.read_bytes()
        self.ask(DiskOperation.WRITE, path.name)
        self.record.append(Step(DiskOperation.WRITE, path.name, data=content))
        self.ask(DiskOperation.SYNC, path.name)
        self.record.append(Step(DiskOperation.SYNC, path.name))

    def ask(self, kind: DiskOperation, file: str) -> None:
        """Call `before`, which may raise the disk's error."""
        if self._beside is not None and (now := self._beside.read_bytes()) != self._beside_was:
            self._beside_was = now
            self.record.append(Step(DiskOperation.BESIDE, self._beside.name, data=now))
        self.before(kind, file)


class _Vfs(apsw.VFS):
    """The system's VFS, with a record. It syncs the folder where SQLite's VFS for unix does."""

    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._disk = disk
        self._known: set[str] = set()

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        if name is None or not flags[0] & _DURABLE:
            return apsw.VFSFile("", name, flags)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name)
        file = _File(name, flags, path.name, self._disk)
        if path.name not in self._known:  # a reader with another VFS may have created it empty
            self._known.add(path.name)
            self._disk.record.append(Step(DiskOperation.CREATE, path.name))
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - SQLite's name
        name = Path(filename).name
        self._disk.ask(DiskOperation.DELETE, name)
        super().xDelete(filename, syncdir)
        self._known.discard(name)
        self._disk.record.append(Step(DiskOperation.DELETE, name))
        if syncdir:
            self._disk.record.append(Step(DiskOperation.SYNC_FOLDER))


class _File(apsw.VFSFile):
    """One open file. A journal's first sync syncs its folder too."""

    def __init__(self, name: str | apsw.URIFilename, flags: list[int], short: str, disk: Disk) -> None:
        super().__init__("", name, flags)
        self._name = short
        self._disk = disk
        self._syncs_folder = bool(flags[0] & _JOURNALS and flags[0] & apsw.SQLITE_OPEN_CREATE)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        written = bytes(data)
        self._disk.ask(DiskOperation.WRITE, self._name)
        super().xWrite(written, offset)
        self._disk.record.append(Step(DiskOperation.WRITE, self._name, offset, written))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        self._disk.ask(DiskOperation.TRUNCATE, self._name)
        super().xTruncate(newsize)
        self._disk.record.append(Step(DiskOperation.TRUNCATE, self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        try:
            self._disk.ask(DiskOperation.SYNC, self._name)
            super().xSync(flags)
        except Exception:  # any error is recorded, and raised again
            self._disk.record.append(Step(DiskOperation.SYNC_FAILED, self._name))
            raise
        self._disk.record.append(Step(DiskOperation.SYNC, self._name))
        if self._syncs_folder:
            self._syncs_folder = False
            self._disk.record.append(Step(DiskOperation.SYNC_FOLDER))
