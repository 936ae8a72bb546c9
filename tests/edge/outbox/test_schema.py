"""The schema of a new file, and the migrations of an old one."""

import contextlib
from pathlib import Path

import pytest
from sqlite_utils import Database

from fogline.errors import Misconfigured
from fogline_edge.outbox.file.schema import MIGRATIONS, connect_file, migrate, open_database


def later(database: Database) -> None:
    """A migration as a later version may have."""
    database.table("stream").add_column("colour", str)
    database.table("later").create({"number": int}, pk="number")


def failing(database: Database) -> None:
    later(database)
    database.execute("DROP TABLE missing")


def version(connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def test_a_new_file_has_the_newest_version(tmp_path: Path) -> None:
    with contextlib.closing(open_database(tmp_path / "outbox.db", 10**9)) as connection:
        assert version(connection) == len(MIGRATIONS) + 1


def test_a_file_gets_the_migrations_that_it_lacks_once(tmp_path: Path) -> None:
    open_database(tmp_path / "outbox.db", 10**9).close()
    with contextlib.closing(connect_file(tmp_path / "outbox.db")) as connection:
        for _ in range(2):
            migrate(connection, (*MIGRATIONS, later))
            assert version(connection) == len(MIGRATIONS) + 2
        assert connection.execute("SELECT colour FROM stream, later").fetchall() == []


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    open_database(tmp_path / "outbox.db", 10**9).close()
    with (
        contextlib.closing(connect_file(tmp_path / "outbox.db")) as connection,
        pytest.raises(Exception, match="no such table"),
    ):
        migrate(connection, (*MIGRATIONS, failing))
    with contextlib.closing(open_database(tmp_path / "outbox.db", 10**9)) as connection:
        assert version(connection) == len(MIGRATIONS) + 1
        assert "colour" not in [name for _, name, *_ in connection.execute("PRAGMA table_info(stream)")]


def test_a_file_with_tables_and_without_a_version_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    with contextlib.closing(open_database(tmp_path / "outbox.db", 10**9)) as connection:
        connection.execute("PRAGMA user_version = 0")
    with pytest.raises(Misconfigured, match="cannot be opened"):
        open_database(tmp_path / "outbox.db", 10**9)


def test_a_file_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with contextlib.closing(open_database(tmp_path / "outbox.db", 10**9)) as connection:
        migrate(connection, (*MIGRATIONS, later))
    with pytest.raises(Misconfigured, match="newer version of fogline-edge"):
        open_database(tmp_path / "outbox.db", 10**9)
    with contextlib.closing(connect_file(tmp_path / "outbox.db")) as connection:
        assert version(connection) == len(MIGRATIONS) + 2
