"""apsw connection with the interface of `sqlite3.Connection`, as far as the outbox uses it.

`apsw` accepts a VFS written in Python, `sqlite3` does not. Its errors are mapped to those of `sqlite3`.

`apsw` also raises errors of the disk that SQLite itself ignores: a checkpoint that fails after its commit, or while the
file is closed, is retried later. This module ignores them as well.
"""

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import apsw

_ERRORS: dict[type[apsw.Error], type[sqlite3.Error]] = {
    apsw.ConstraintError: sqlite3.IntegrityError,
    apsw.CorruptError: sqlite3.DatabaseError,
    apsw.NotADBError: sqlite3.DatabaseError,
}

_AUTOCHECKPOINT = re.compile(r"PRAGMA wal_autocheckpoint = (\d+)")


class Rows:
    """Rows of a statement, all read already, with the interface of `sqlite3.Cursor`."""

    def __init__(self, rows: list[tuple[Any, ...]], description: Sequence[tuple[Any, ...]], changed: int, last: int) -> None:
        self._rows = iter(rows)
        self.description = description
        self.rowcount = changed
        self.lastrowid = last

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or `None`."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the remaining rows."""
        return list(self._rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def close(self) -> None:
        """Discard the remaining rows."""
        self._rows = iter(())


class ApswConnection:
    """Connection without implicit transactions, as with `isolation_level=None`."""

    isolation_level = None

    def __init__(self, connection: apsw.Connection) -> None:
        self._apsw = connection
        self._checkpoint_at = 0

    @classmethod
    def open(cls, path: Path, vfs: str) -> sqlite3.Connection:
        """Open a database through a VFS that is registered under a name."""
        with _as_sqlite3():
            return cast("sqlite3.Connection", cls(apsw.Connection(str(path), vfs=vfs)))

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open."""
        return self._apsw.in_transaction

    def execute(self, sql: str, parameters: Any = ()) -> Rows:
        """Run a statement to its end."""
        if (pragma := _AUTOCHECKPOINT.fullmatch(sql)) is not None:
            self._checkpoint_at = int(pragma[1])
            self._apsw.set_wal_hook(self._committed)
            return Rows([], [], 0, 0)
        cursor, description = self._apsw.cursor(), list[tuple[Any, ...]]()

        def describe(cursor: apsw.Cursor, _sql: str, _parameters: Any) -> bool:
            description[:] = [(name, *[None] * 6) for name, _ in cursor.get_description()]
            return True

        cursor.exec_trace = describe
        with _as_sqlite3():
            rows = cursor.execute(sql, parameters).fetchall()
        return Rows(rows, description, self._apsw.changes(), self._apsw.last_insert_rowid())

    def executemany(self, sql: str, parameters: Iterable[Any]) -> None:
        """Run a statement with each of `parameters`."""
        with _as_sqlite3():
            self._apsw.cursor().executemany(sql, parameters)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(apsw.Error):
            self._apsw.close()

    def _committed(self, connection: apsw.Connection, name: str, pages: int) -> int:
        """Checkpoint as SQLite's own WAL hook does."""
        if pages >= self._checkpoint_at:
            with contextlib.suppress(apsw.Error):
                connection.wal_checkpoint(name)
        return apsw.SQLITE_OK


@contextlib.contextmanager
def _as_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        mapped = _ERRORS.get(type(error), sqlite3.OperationalError)(str(error))
        mapped.sqlite_errorcode = getattr(error, "extendedresult", apsw.SQLITE_ERROR)
        raise mapped from error
