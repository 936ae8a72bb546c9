"""C12, the end in the middle of a migration: the old schema or the new one, never a mix, and every row is kept."""

import contextlib
import sqlite3
import struct

import pytest
from sqlite_utils import Database

from fogline_edge.outbox.migrations import migrations
from fogline_edge.outbox.schema import connect_file, open_database
from fogline_lab.disk import Disk, DiskOperation
from fogline_lab.power_cut import PowerCut

FILE = "outbox.db"
LARGE = 10**9
NAMES = [each.name for each in migrations.pending(Database(memory=True))]
MOVING = NAMES.index("m010_moved")
"""Migrations after which the former table of events and the new one hold the events together."""
VALUES = {"INTEGER": 7, "TEXT": "seven", "BLOB": b"\x07"}
EVENTS = 250
SLOT = struct.Struct(">8sI")
ENTRY = struct.Struct(">8sH8sI")


def make_old(path, version: int, connect=connect_file):
    """A file as it was after so many migrations, with rows in each table; nothing at all for none."""
    connection = connect(path)
    for pragma in ("page_size = 4096", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    if version:
        migrations.apply(Database(connection), stop_before=NAMES[version] if version < len(NAMES) else None)
    connection.execute("BEGIN")
    for table in tables(connection):
        kinds = [kind for _, _, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()]
        marks = ", ".join("?" * len(kinds))
        names = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall())
        connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", content(table, kinds, version))
    connection.execute("COMMIT")
    connection.close()


def content(table: str, kinds: list[str], version: int) -> list[tuple]:
    """The rows of a table. Of a file that is being migrated, some events have been moved."""
    if table in {"event", "event_by_key"}:
        sequences = range(1, EVENTS + 1)
        if version == MOVING:
            sequences = sequences[:100] if table == "event" else sequences[100:]
        keys = [(7 << 40 | each,) if kinds == ["INTEGER", "BLOB", "BLOB", "BLOB"] else (7, each) for each in sequences]
        pairs = [(*key, b"chain %08d" % each, b"body %d" % each) for key, each in zip(keys, sequences, strict=True)]
        return [(*each, None) for each in pairs] if len(keys[0]) == 1 else pairs
    if table == "slot":
        owners = [bytes([n]) * 16 for n in range(3)]
        pages = [b"".join(SLOT.pack(bytes([n, k]) * 4, (n + k) % 3) for k in range(64)) for n in range(3)]
        return [(owners[n], 7 + n, f"device-{n}", n, pages[n]) for n in range(3)]
    if table == "resend":
        return [(7 + n, b"".join(ENTRY.pack(bytes([n]) * 8, k, b"payload!", 7) for k in range(9))) for n in range(3)]
    if table == "dropped":
        return [(7, 11, 12)]
    return [tuple(VALUES[kind] for kind in kinds)]


def schema(connection) -> dict[str, str]:
    """Every table and index with its SQL, but for the migrations' own."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: sql for name, sql in rows if "_sqlite_migrations" not in sql}


def tables(connection) -> list[str]:
    return [name for name, sql in schema(connection).items() if sql.startswith("CREATE TABLE")]


def facts(connection) -> dict[str, list]:
    """All that a file holds, in the words of the newest schema, whatever schema it has."""
    there, found = tables(connection), {}
    for name in there:
        found[name] = connection.execute(f"SELECT * FROM {name}").fetchall()
    for former in ("slot", "filtered", "dropped", "event_by_key"):
        found.pop(former, None)
    if "event" in there:
        found["event"] = sorted(events(connection, there))
    if "stream" in there:
        found["stream"] = [(*of_stream(row), *extra(connection, there, row)) for row in found["stream"]]
    for table in {"resend", "passed", "unsynced", "kept", "command"} - found.keys():
        found[table] = []
    found["resend"] = sorted(messages(connection, there))
    return found


def events(connection, there) -> list[tuple]:
    if "resend" not in there:
        return connection.execute("SELECT stream, sequence, chain, body FROM event").fetchall()
    rows = connection.execute("SELECT place, commit_id, body, message, stream, sequence FROM event").fetchall()
    assert all((place >> 40, place % 2**40, message) == (*key, None) for place, _, _, message, *key in rows)
    former = connection.execute("SELECT * FROM event_by_key").fetchall() if "event_by_key" in there else []
    return [(place >> 40, place % 2**40, chain, body) for place, chain, body, *_ in rows] + former


def of_stream(row) -> tuple:
    """The columns that every version has: former ones have a chain after the head."""
    return row[:15] if len(row) == 18 else (*row[:5], *row[6:16])


def extra(connection, there, row) -> tuple:
    """The highest dropped sequence of a stream, and its counts of filtered and dropped events."""
    if len(row) == 18:
        return row[15:]
    tables = {"filtered": "events, events", "dropped": "upto, events"}
    found = {
        each: connection.execute(f"SELECT {columns} FROM {each} WHERE stream = ?", (row[0],)).fetchone()
        if each in there
        else None
        for each, columns in tables.items()
    }
    filtered, dropped = (found[each] or (0, 0) for each in tables)
    return dropped[0], filtered[1], dropped[1]


def messages(connection, there) -> list[tuple]:
    """The messages whose resends are recognised: client, id, digest, and age plus 1."""
    if "resend" in there:
        blobs = [blob for (blob,) in connection.execute("SELECT entries FROM resend")]
        return [each for blob in blobs for each in ENTRY.iter_unpack(blob)]
    if "slot" not in there:
        return []
    slots = connection.execute("SELECT owner, page, value FROM slot").fetchall()
    every = [
        (owner[:8], page * 64 + k, *each) for owner, page, value in slots for k, each in enumerate(SLOT.iter_unpack(value))
    ]
    return [each for each in every if each[3]]


def applied(connection) -> list[str]:
    return [each.name for each in migrations.applied(Database(connection))]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory):
    """Return the file's schema after each number of migrations."""
    folder, found = tmp_path_factory.mktemp("schemas"), []
    for version in range(len(NAMES) + 1):
        make_old(folder / f"{version}.db", version)
        with contextlib.closing(sqlite3.connect(folder / f"{version}.db")) as connection:
            found.append(schema(connection))
    return found


@pytest.mark.parametrize("version", range(len(NAMES)))
@pytest.mark.fault("C12")
def test_whenever_it_ends_there_is_one_schema_or_the_other_and_every_row(folder, memory, schemas, version, thorough):
    disk = Disk()
    make_old(folder / FILE, version, disk.connect)
    with contextlib.closing(connect_file(folder / FILE)) as connection:
        before = facts(connection)
    assert len(before.get("event", ())) == (EVENTS if version else 0)
    assert len(before["resend"]) == (27 if version >= MOVING else 128 if version >= 4 else 0)
    since = len(disk.record)
    open_database(folder / FILE, LARGE, disk.connect).close()
    found, moved, images = set(), set(), 0
    for image in PowerCut(disk.record, every=1 if thorough else 5).images():
        if image.cut <= since:
            continue
        images += 1
        image.write(memory)
        with contextlib.closing(sqlite3.connect(memory / FILE)) as connection:
            names = applied(connection)
            assert names == NAMES[: len(names)], image.how
            assert schema(connection) == schemas[len(names)], image.how
            assert not version or facts(connection) == before, image.how
            found.add(len(names))
            if len(names) == MOVING:
                moved.add(connection.execute("SELECT count(*) FROM event").fetchone()[0])
        with contextlib.closing(open_database(memory / FILE, LARGE)) as connection:
            assert schema(connection) == schemas[-1]
            assert not version or facts(connection) == before
            assert applied(connection) == NAMES
            assert unique_names(connection), f"cut after step {image.cut}, {image.how}: a migration could be noted twice"
    print(f"from version {version}: {images} disk images, schemas {sorted(found)}, moved {sorted(moved)}")
    between = {MOVING} if version else set()
    steps = {100, 200, 250} if version == MOVING else {0, 100, 200, 250} if version else set()
    if not thorough:  # one image in five need not meet each state
        assert found <= {version, len(NAMES)} | between
        assert moved <= steps
        return
    assert found == {version, len(NAMES)} | between
    assert moved == steps
    assert images > sum(step.kind is DiskOperation.WRITE for step in disk.record[since:])


def unique_names(connection) -> bool:
    """Return True if the table of migrations is complete, with its index."""
    return any(index.unique for index in Database(connection).table("_sqlite_migrations").indexes)
