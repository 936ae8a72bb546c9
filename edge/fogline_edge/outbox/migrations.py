"""Migrations of older outbox files, by sqlite-utils. A new file is made by `schema.sql`, which a test compares with these.

Only `schema` imports this module, and only for a file that needs it: sqlite-utils imports pandas where that is installed, which
takes 100 MB of memory. A migration that was released never changes.
"""

import sqlite3

from sqlite_utils import Database, Migrations

from fogline_edge.outbox.free_space import page_bytes, used_pages
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.resend_memory import former_entries
from fogline_edge.outbox.streams import SEQUENCE_BITS, SEQUENCE_MASK, event_place

migrations = Migrations("fogline-edge")
SPARE_PAGES = 64  # by so many a file that is full to its limit may exceed it, because another table needs room


@migrations()
def m001_outbox(db: Database) -> None:
    """Create streams, events, quarantine, the memory of duplicates, and facts about the file itself."""
    counts = ("acknowledged", "stored", "duplicate", "dead", "sent", "settled_events", "quarantined")
    state = {"number": int, "stream": str, "lane": str, "open": int, "head": int, "chain": bytes, "settled": int}
    columns = {**state, "settled_chain": bytes, **dict.fromkeys(counts, int)}
    db.table("stream").create({**columns, "reason": str}, pk="number", not_null=columns.keys() - {"number"})
    db.table("stream").create_index(["stream"], unique=True)
    db.execute(
        "CREATE TABLE event (stream INTEGER NOT NULL, sequence INTEGER NOT NULL, chain BLOB NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (stream, sequence)) WITHOUT ROWID"
    )
    rejected = {"stream": int, "sequence": int, "condition": str, "description": str, "body": bytes, "quarantined_at": str}
    db.table("quarantine").create(rejected, pk=("stream", "sequence"))
    db.execute(
        "CREATE TABLE memory (key BLOB PRIMARY KEY, device TEXT NOT NULL, stored_s INTEGER NOT NULL, value BLOB NOT NULL)"
        " WITHOUT ROWID"
    )
    db.table("meta").create({"key": str, "value": str}, pk="key")


@migrations()
def m002_kept(db: Database) -> None:
    """Create the values that adapters keep across restarts."""
    db.execute("CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")


@migrations()
def m003_journal(db: Database) -> None:
    """Create the journal of commands."""
    db.execute(
        "CREATE TABLE command (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, device TEXT NOT NULL, name TEXT NOT NULL,"
        " content_type TEXT, data BLOB NOT NULL, reply INTEGER NOT NULL, durable INTEGER NOT NULL,"
        " idempotent INTEGER NOT NULL, correlation TEXT NOT NULL, boot TEXT NOT NULL, deadline_ms INTEGER NOT NULL,"
        " digest BLOB NOT NULL, state TEXT NOT NULL, changed_s INTEGER NOT NULL, status INTEGER, answer_digest BLOB)"
    )
    db.table("command").create_index(["state"])


@migrations()
def m004_slots(db: Database) -> None:
    """Create the last message of each packet id, 64 ids a row (see `resend_memory`)."""
    db.execute(
        "CREATE TABLE slot (owner BLOB NOT NULL, page INTEGER NOT NULL, device TEXT NOT NULL, stored_s INTEGER NOT NULL,"
        " value BLOB NOT NULL, PRIMARY KEY (owner, page)) WITHOUT ROWID"
    )


@migrations()
def m005_unsynced(db: Database) -> None:
    """Create the times since boot of events that came while the wall clock was not set, for ranges of sequences."""
    db.execute(
        "CREATE TABLE unsynced (stream INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, boot TEXT NOT NULL,"
        " boottime_ms INTEGER NOT NULL, PRIMARY KEY (stream, first)) WITHOUT ROWID"
    )


@migrations()
def m006_filtered(db: Database) -> None:
    """Create the counts of unchanged reports by stream."""
    db.execute("CREATE TABLE filtered (stream INTEGER PRIMARY KEY, events INTEGER NOT NULL)")


@migrations()
def m007_dropped(db: Database) -> None:
    """Create the dropped ranges by stream, and the chains of dropped rows that may have been sent."""
    db.execute("CREATE TABLE dropped (stream INTEGER PRIMARY KEY, upto INTEGER NOT NULL, events INTEGER NOT NULL)")
    db.execute(
        "CREATE TABLE passed (stream INTEGER NOT NULL, sequence INTEGER NOT NULL, chain BLOB NOT NULL,"
        " PRIMARY KEY (stream, sequence)) WITHOUT ROWID"
    )


@migrations()
def m008_devices(db: Database) -> None:
    """Index the memory of duplicates by device, so that expiry needs no full scan.

    If the memory fills the file, the index has no room: then the memory is deleted.
    """
    (max_pages,) = db.execute("PRAGMA max_page_count").fetchone()
    for table, columns in (("memory", ["device", "stored_s"]), ("slot", ["device"])):
        (index_bytes,) = db.execute(f"SELECT total(40 + length(CAST(device AS BLOB))) FROM {table}").fetchone()  # noqa: S608
        if used_pages(db.conn) + 2 * index_bytes // page_bytes(db.conn) > max_pages:
            db.execute(f"DELETE FROM {table}")  # noqa: S608 - one of our own names
        db.table(table).create_index(columns)


@migrations()
def m009_places(db: Database) -> None:
    """Create events with row ids, so that a stream grows at one end, and the log of messages. `move_events` fills `event`."""
    db.execute("ALTER TABLE event RENAME TO event_by_key")
    db.execute(
        "CREATE TABLE event (place INTEGER PRIMARY KEY, commit_id BLOB NOT NULL, body BLOB NOT NULL, message BLOB,"
        f" stream INTEGER AS (place >> {SEQUENCE_BITS}), sequence INTEGER AS (place & {SEQUENCE_MASK}))"
    )
    db.execute("CREATE TABLE resend (number INTEGER PRIMARY KEY, entries BLOB NOT NULL)")
    slots = db.execute("SELECT owner, page, value FROM slot ORDER BY stored_s").fetchall()
    db.execute("DROP TABLE slot")
    db.conn.executemany("INSERT INTO resend (entries) VALUES (?)", [(former_entries(*each),) for each in slots])
    for column in ("dropped_upto", "filtered", "dropped"):
        db.execute(f"ALTER TABLE stream ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE stream SET filtered = ifnull((SELECT events FROM filtered WHERE stream = number), 0)")
    db.execute(
        "UPDATE stream SET (dropped_upto, dropped) = (SELECT upto, events FROM dropped WHERE dropped.stream = number)"
        " WHERE number IN (SELECT stream FROM dropped)"
    )
    db.execute("ALTER TABLE stream DROP COLUMN chain")
    db.execute("ALTER TABLE stream RENAME COLUMN settled_chain TO settled_commit_id")
    db.execute("ALTER TABLE passed RENAME COLUMN chain TO commit_id")
    db.execute("DROP TABLE filtered")
    db.execute("DROP TABLE dropped")


@migrations()
def m010_moved(db: Database) -> None:
    """Drop the former table of events. `move_events` has emptied it."""
    db.execute("DROP TABLE event_by_key")


def move_events(connection: sqlite3.Connection) -> None:
    """Move the events of the former table, some at a time, each step in a transaction: a full file has no room for two."""
    rows: list[tuple[int, int, bytes, bytes]]
    while rows := connection.execute("SELECT * FROM event_by_key ORDER BY stream, sequence LIMIT 100").fetchall():
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM event_by_key WHERE stream = ? AND sequence = ?", [each[:2] for each in rows])
        moved = [(event_place(number, sequence), chain, body, None) for number, sequence, chain, body in rows]
        connection.executemany(SQL["insert_event"], moved)
        connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection) -> None:
    """Apply all pending migrations. Each transaction leaves a file from which the next start continues."""
    database = Database(connection)
    pending = [each.name for each in migrations.pending(database)]
    (limit,) = connection.execute("PRAGMA max_page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {limit + SPARE_PAGES}")
    for before in (m010_moved.__name__, None) if m010_moved.__name__ in pending else (None,):
        with database.atomic():
            migrations.apply(database, stop_before=before)
        if before is not None:
            move_events(connection)
    connection.execute(f"PRAGMA max_page_count = {limit}")
