"""The schema of a new file, and the migrations of an older one, give the same tables."""

import contextlib
import sqlite3
from pathlib import Path

from sqlite_utils import Database

from fogline_edge.outbox.migrations import migrate, migrations
from fogline_edge.outbox.schema import NEWEST_MIGRATION, connect_file, open_database

ALL = "SELECT name, sql FROM sqlite_master ORDER BY name"


def test_a_new_file_has_the_schema_that_all_migrations_give(tmp_path: Path) -> None:
    with contextlib.closing(connect_file(tmp_path / "migrated.db")) as connection:
        migrate(connection)
        migrated, names = connection.execute(ALL).fetchall(), [each.name for each in migrations.applied(Database(connection))]
    with contextlib.closing(open_database(tmp_path / "new.db", 10**9)) as connection:
        assert connection.execute(ALL).fetchall() == migrated
        assert [each.name for each in migrations.applied(Database(connection))] == names
        assert migrations.pending(Database(connection)) == []
    assert names[-1] == NEWEST_MIGRATION


def test_a_file_that_lacks_the_newest_migration_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with contextlib.closing(connect_file(path)) as connection:
        migrations.apply(Database(connection), stop_before=NEWEST_MIGRATION)
    open_database(path, 10**9).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert migrations.pending(Database(connection)) == []
