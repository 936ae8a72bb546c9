"""C12, the end in the middle of a migration: the old schema or the new one, never a mix, and every row is kept."""

import contextlib
import sqlite3

import pytest
from sqlite_utils import Database

from fogline.testing.disk import Disk, Kind
from fogline.testing.power_cut import PowerCut
from fogline_edge.outbox.schema import connect_file, migrations, open_database

FILE = "outbox.db"
LARGE = 10**9
NAMES = [each.name for each in migrations.pending(Database(memory=True))]
VALUES = {"INTEGER": 7, "TEXT": "seven", "BLOB": b"\x07"}


def make_old(path, version: int, connect=connect_file):
    """A file as it was after so many migrations, with a row in each table; nothing at all for none."""
    connection = connect(path)
    for pragma in ("page_size = 4096", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    if version:
        migrations.apply(Database(connection), stop_before=NAMES[version:])
    for table in tables(connection):
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        values = [VALUES[kind] for _, _, kind, *_ in columns]
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    connection.close()


def schema(connection) -> dict[str, str]:
    """Every table and index with its SQL, but for the migrations' own."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: sql for name, sql in rows if "_sqlite_migrations" not in sql}


def tables(connection) -> list[str]:
    return [name for name, sql in schema(connection).items() if sql.startswith("CREATE TABLE")]


def rows(connection, names) -> dict[str, list]:
    return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


def applied(connection) -> list[str]:
    return [each.name for each in migrations.applied(Database(connection))]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory):
    """What the file looks like after each number of migrations."""
    folder, found = tmp_path_factory.mktemp("schemas"), []
    for version in range(len(NAMES) + 1):
        make_old(folder / f"{version}.db", version)
        with contextlib.closing(sqlite3.connect(folder / f"{version}.db")) as connection:
            found.append(schema(connection))
    return found


@pytest.mark.parametrize("version", range(len(NAMES)))
@pytest.mark.fault("C12")
def test_whenever_it_ends_there_is_one_schema_or_the_other_and_every_row(folder, memory, schemas, version):
    disk = Disk()
    make_old(folder / FILE, version, disk.connect)
    with contextlib.closing(connect_file(folder / FILE)) as connection:
        before = rows(connection, tables(connection))
    assert bool(before) == bool(version)
    since = len(disk.record)
    open_database(folder / FILE, LARGE, disk.connect).close()
    found, images = set(), 0
    for image in PowerCut(disk.record).images():
        if image.cut <= since:
            continue
        images += 1
        image.write(memory)
        with contextlib.closing(sqlite3.connect(memory / FILE)) as connection:
            names = applied(connection)
            assert names == NAMES[: len(names)], image.how
            assert schema(connection) == schemas[len(names)], image.how
            assert rows(connection, before) == before, image.how
            found.add(len(names))
        with contextlib.closing(open_database(memory / FILE, LARGE)) as connection:
            assert schema(connection) == schemas[-1]
            assert rows(connection, before) == before
            assert applied(connection) == NAMES
            assert unique_names(connection), f"cut after step {image.cut}, {image.how}: a migration could be noted twice"
    print(f"from version {version}: {images} disk images, schemas {sorted(found)}")
    assert found == {version, len(NAMES)}
    assert images > sum(step.kind is Kind.WRITE for step in disk.record[since:])


def unique_names(connection) -> bool:
    """Whether the migrations' own table is whole, with its index."""
    return any(index.unique for index in Database(connection).table("_sqlite_migrations").indexes)
