"""Opens the outbox's file and brings it to the newest schema.

WAL and `synchronous=FULL`: a commit that returned survives a power cut. `max_page_count` bounds the file and
`journal_size_limit` the WAL, so that the outbox reports a full disk before SQLite wedges.

A WAL that a former run left is copied into the file before anything is added. If its last sync failed, and the run ended before
it recorded that, its commits can be read only until the machine ends, and SQLite would stop reading the WAL there later.
"""

import sqlite3
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from fogline.errors import Misconfigured
from fogline_edge.outbox.file.pages import PAGE_BYTES

if TYPE_CHECKING:
    from sqlite_utils import Database

FIRST = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
"""The script that makes a file of version 1. A statement ends with `;` at the end of a line."""
MIGRATIONS: "tuple[Callable[[Database], None], ...]" = ()
"""What brings a file from each version to the next, by sqlite-utils: its `transform` changes more than SQLite's ALTER TABLE.

A migration that was released never changes. The version of a file is its `PRAGMA user_version`.
"""

Connect = Callable[[Path], sqlite3.Connection]
"""Opens a file in autocommit mode (`isolation_level=None`)."""


def connect_file(path: Path) -> sqlite3.Connection:
    """Open a local file. The connection may move between threads, but only one may use it at a time."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)


def open_database(path: Path, max_bytes: int, connect: Connect = connect_file) -> sqlite3.Connection:
    """Open or create the outbox at `path`. Raises `Misconfigured`: not writable, no space, not a database."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = connect(path)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            connection.close()
            hint = "put `data` on a local disk, not on a network or shared folder"
            raise Misconfigured(f"the outbox {path} cannot have a write-ahead log here (it is in mode {mode}): {hint}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")  # deleted rows must not come back when a damaged file is salvaged
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        connection.execute(f"PRAGMA max_page_count = {max_bytes // PAGE_BYTES}")
        connection.execute("PRAGMA journal_size_limit = 8388608")
        connection.execute("PRAGMA wal_autocheckpoint = 2000")
        migrate(connection)
    except (OSError, sqlite3.Error) as error:
        hint = "check the folder, its owner and the free space"
        raise Misconfigured(f"the outbox {path} cannot be opened: {error}; {hint}") from error
    return connection


def migrate(connection: sqlite3.Connection, migrations: "Sequence[Callable[[Database], None]]" = MIGRATIONS) -> None:
    """Make the tables of an empty file, and apply the migrations that the file has not had, each in a transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        _make(connection)
        version = 1
    if version > 1 + len(migrations):
        raise Misconfigured("a newer version of fogline-edge has written the outbox: install that version, or restore a backup")
    if pending := migrations[version - 1 :]:
        from sqlite_utils import Database  # noqa: PLC0415 - it imports pandas where that is installed: 100 MB of memory

        database = Database(connection)
        for number, migration in enumerate(pending, version + 1):
            with database.atomic():
                migration(database)
                database.execute(f"PRAGMA user_version = {number}")


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in FIRST.split(";\n"):
        connection.execute(statement)
    connection.execute("PRAGMA user_version = 1")
    connection.execute("COMMIT")
