"""C12, the end in the middle of a migration: the old schema or the new one, never a mix, and every row is kept."""

import contextlib
import sqlite3

import pytest
from sqlite_utils import Database

from fogline_edge.outbox.file.schema import MIGRATIONS, connect_file, migrate, open_database
from fogline_lab.disk import Disk, DiskOperation
from fogline_lab.power_cut import PowerCut

FILE = "outbox.db"
LARGE = 10**9
VALUES = {"INTEGER": 7, "TEXT": "seven", "BLOB": b"\x07"}
EVENTS = 250


def colours(database: Database) -> None:
    database.table("stream").add_column("colour", str)
    database.execute("CREATE TABLE new AS SELECT * FROM kept")
    database.execute("DROP INDEX idx_command_state")


def last(database: Database) -> None:
    database.table("last").create({"number": int}, pk="number")


LATER = (colours, last)
"""Migrations as a later version may have."""


def fill(connection) -> None:
    """Add a row to each table, and many events."""
    connection.execute("BEGIN")
    for table in (name for name, sql in schema(connection) if sql.startswith("CREATE TABLE")):
        columns = {name: kind for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall()}
        rows = [list(map(VALUES.get, columns.values()))]
        if table == "event":
            rows = [[7 << 40 | n, b"commit", b"body %d" % n, None] for n in range(1, EVENTS + 1)]
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        connection.executemany(statement, rows)
    connection.execute("COMMIT")


def schema(connection) -> list[tuple[str, str]]:
    return connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()


def version(connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def facts(connection) -> list:
    """Every row of the first version's tables, without the columns of later ones."""
    events = connection.execute("SELECT * FROM event").fetchall()
    stream = connection.execute("SELECT * FROM stream").fetchone()[:18]
    others = [
        connection.execute(f"SELECT * FROM {each}").fetchall() for each in ("command", "kept", "memory", "meta", "resend")
    ]
    return [events, stream, others]


@pytest.mark.parametrize("new", [True, False], ids=["of nothing", "of an old file"])
@pytest.mark.fault("C12")
def test_whenever_it_ends_there_is_one_schema_or_the_other_and_every_row(folder, memory, new, thorough):
    disk, migrations = Disk(), (*MIGRATIONS, *LATER)
    with contextlib.closing(open_database(folder / FILE, LARGE, disk.connect)) as connection:
        schemas = [[], schema(connection)]
        if not new:
            fill(connection)
            before = facts(connection)
    since = 0 if new else len(disk.record)
    with contextlib.closing(disk.connect(folder / FILE)) as connection:
        for count in range(len(MIGRATIONS) + 1, len(migrations) + 1):
            migrate(connection, migrations[:count])
            schemas.append(schema(connection))
    found, images = set(), 0
    for image in PowerCut(disk.record, every=1 if thorough else 5).images():
        if image.cut <= since:
            continue
        images += 1
        image.write(memory)
        with contextlib.closing(sqlite3.connect(memory / FILE)) as connection:
            found.add(at := version(connection))
            assert schema(connection) == schemas[at], image.how
            assert new or facts(connection) == before, image.how
        with contextlib.closing(connect_file(memory / FILE)) as connection:
            migrate(connection, migrations)
            assert (schema(connection), version(connection)) == (schemas[-1], len(migrations) + 1), image.how
            assert new or facts(connection) == before, image.how
    print(f"{images} disk images, versions {sorted(found)}")
    assert found <= set(range(0 if new else 1, len(migrations) + 2))
    if thorough:  # one image in five need not meet each state
        assert found == set(range(0 if new else 1, len(migrations) + 2))
        assert images > sum(step.kind is DiskOperation.WRITE for step in disk.record[since:])
