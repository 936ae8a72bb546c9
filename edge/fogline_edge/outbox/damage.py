"""Which errors say that the outbox's file is damaged, rather than that the machine lacks something."""

import sqlite3

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
    """Whether this, or what caused it, says that the file is not what it should be."""
    if isinstance(error.__cause__, sqlite3.Error):
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError):
        return True
    if not isinstance(error, sqlite3.Error):
        return False
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is None or code in _READING or code & 0xFF not in _ENVIRONMENT
