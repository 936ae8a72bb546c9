"""The outbox's file: how it is opened, what stands in it, how an older one becomes a newer one.

WAL and `synchronous=FULL`: a commit that returned survives a power cut. The file is bounded by `max_page_count`, the
WAL by `journal_size_limit`, so that a full disk is met before it wedges SQLite. A log that is found is copied into the
file before anything is added to it: what a run wrote whose sync failed can be read until the machine ends, and not later,
and SQLite ends its reading of a log there.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlite_utils import Database, Migrations

from fogline.errors import Misconfigured

PAGE_BYTES = 4096

migrations = Migrations("fogline-edge")


@migrations()
def m001_outbox(db: Database) -> None:
    """Streams, their events, quarantine, the memory of resends, and facts about the file itself."""
    counts = ("acknowledged", "stored", "duplicate", "dead", "sent", "settled_events", "quarantined")
    db.table("stream").create(
        {
            "number": int,
            "stream": str,
            "lane": str,
            "open": int,
            "head": int,
            "chain": bytes,
            "settled": int,
            "settled_chain": bytes,
            **dict.fromkeys(counts, int),
            "reason": str,
        },
        pk="number",
        not_null={"stream", "lane", "open", "head", "chain", "settled", "settled_chain", *counts},
    )
    db.table("stream").create_index(["stream"], unique=True)
    db.execute(
        "CREATE TABLE event (stream INTEGER NOT NULL, sequence INTEGER NOT NULL, chain BLOB NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (stream, sequence)) WITHOUT ROWID"
    )
    db.table("quarantine").create(
        {
            "stream": int,
            "sequence": int,
            "condition": str,
            "description": str,
            "body": bytes,
            "quarantined_at": str,
        },
        pk=("stream", "sequence"),
    )
    db.execute(
        "CREATE TABLE memory (key BLOB PRIMARY KEY, device TEXT NOT NULL, stored_s INTEGER NOT NULL, value BLOB NOT NULL)"
        " WITHOUT ROWID"
    )
    db.table("meta").create({"key": str, "value": str}, pk="key")


@migrations()
def m002_kept(db: Database) -> None:
    """What adapters keep for themselves across restarts."""
    db.execute("CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")


@migrations()
def m003_journal(db: Database) -> None:
    """Commands to devices, and where each is."""
    db.execute(
        "CREATE TABLE command (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, device TEXT NOT NULL, name TEXT NOT NULL,"
        " content_type TEXT, data BLOB NOT NULL, reply INTEGER NOT NULL, durable INTEGER NOT NULL,"
        " idempotent INTEGER NOT NULL, correlation TEXT NOT NULL, boot TEXT NOT NULL, deadline_ms INTEGER NOT NULL,"
        " digest BLOB NOT NULL, state TEXT NOT NULL, changed_s INTEGER NOT NULL, status INTEGER, answer_digest BLOB)"
    )
    db.table("command").create_index(["state"])


@migrations()
def m004_slots(db: Database) -> None:
    """The last message of each numbered slot, 64 slots a row (see `slots`)."""
    db.execute(
        "CREATE TABLE slot (owner BLOB NOT NULL, page INTEGER NOT NULL, device TEXT NOT NULL, stored_s INTEGER NOT NULL,"
        " value BLOB NOT NULL, PRIMARY KEY (owner, page)) WITHOUT ROWID"
    )


@migrations()
def m005_unsynced(db: Database) -> None:
    """When events came while the wall clock was not set: by the clock of the boot, for a range of sequences."""
    db.execute(
        "CREATE TABLE unsynced (stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, boot TEXT NOT NULL,"
        " boottime_ms INTEGER NOT NULL, PRIMARY KEY (stream, first)) WITHOUT ROWID"
    )


@migrations()
def m006_filtered(db: Database) -> None:
    """How much was no news, by stream."""
    db.execute("CREATE TABLE filtered (stream INTEGER PRIMARY KEY, events INTEGER NOT NULL)")


@migrations()
def m007_dropped(db: Database) -> None:
    """What was let go, by stream: up to where it is not settled, how much in all. Chains of what of it may have been sent."""
    db.execute("CREATE TABLE dropped (stream INTEGER PRIMARY KEY, upto INTEGER NOT NULL, events INTEGER NOT NULL)")
    db.execute(
        "CREATE TABLE passed (stream INTEGER NOT NULL, sequence INTEGER NOT NULL, chain BLOB NOT NULL,"
        " PRIMARY KEY (stream, sequence)) WITHOUT ROWID"
    )


@migrations()
def m008_devices(db: Database) -> None:
    """The memory of resends by device, so that what nobody needs is found without a look at all of it.

    Of a memory that filled the file up, the index has no room: then it is forgotten.
    """
    (max_pages,) = db.execute("PRAGMA max_page_count").fetchone()
    for table, columns in (("memory", ["device", "stored_s"]), ("slot", ["device"])):
        (index_bytes,) = db.execute(f"SELECT total(40 + length(CAST(device AS BLOB))) FROM {table}").fetchone()  # noqa: S608
        if used_pages(db.conn) + 2 * index_bytes // PAGE_BYTES > max_pages:
            db.execute(f"DELETE FROM {table}")  # noqa: S608 - one of our own names
        db.table(table).create_index(columns)


Connect = Callable[[Path], sqlite3.Connection]
"""Opens a file, without transactions of its own making (`isolation_level=None`)."""


def connect_file(path: Path) -> sqlite3.Connection:
    """Open a file of this machine; whoever uses it sees to it that one thread does at a time."""
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)


def open_database(path: Path, max_bytes: int, connect: Connect = connect_file) -> sqlite3.Connection:
    """Open or make the outbox at `path`. Raises `Misconfigured`: not writable, no space, not a database."""
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
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        connection.execute(f"PRAGMA max_page_count = {max_bytes // PAGE_BYTES}")
        connection.execute("PRAGMA journal_size_limit = 8388608")
        connection.execute("PRAGMA wal_autocheckpoint = 1000")
        database = Database(connection)
        with database.atomic():  # all of them and their own table, or none
            migrations.apply(database)
    except (OSError, sqlite3.Error) as error:
        hint = "check the folder, its owner and the free space"
        raise Misconfigured(f"the outbox {path} cannot be opened: {error}; {hint}") from error
    return connection


def used_pages(connection: sqlite3.Connection) -> int:
    """Pages of the file that hold something."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(pages) - int(free)
