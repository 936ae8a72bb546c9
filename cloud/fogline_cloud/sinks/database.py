"""A database over ADBC, the interface of Arrow to databases: transactions, rows in, rows out.

Errors of the driver are raised as `Unreachable` if waiting may help, else as `Misconfigured`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_manager import AdbcStatusCode, dbapi

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.schema import Column
from fogline_cloud.sinks.dialects import (
    DELETED,
    DIALECTS,
    STAGED,
    create_positions,
    create_target,
    delete_rows,
    insert_position,
    list_columns,
    listed,
    lock_position,
    quoted,
    read_positions,
    update_position,
)
from fogline_cloud.sinks.failures import failure_of
from fogline_cloud.sinks.place import Kind, Place
from fogline_cloud.sinks.position import COLUMNS, NOTHING, TABLE, Position


@contextmanager
def connected(place: Place) -> Iterator["Database"]:
    """Connect for the time of the block."""
    with mapped(place):
        connection = _connect(place)
    try:
        yield Database(place, connection)
    finally:
        with suppress(adbc_driver_manager.Error):
            connection.close()


@contextmanager
def mapped(place: Place) -> Iterator[None]:
    """Raise errors of the driver within the block as those of Fogline."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        is_io = error.status_code is AdbcStatusCode.IO
        raise failure_of(place, str(error), error.sqlstate, is_io=is_io) from None


def _connect(place: Place) -> dbapi.Connection:
    """Connect. Each driver is imported only if it is needed, because each comes with a large library."""
    if place.kind is Kind.POSTGRESQL:
        from adbc_driver_postgresql import dbapi as postgresql  # noqa: PLC0415

        return postgresql.connect(place.address, autocommit=True)
    is_new = _require_usable(place)
    if place.kind is Kind.DUCKDB:
        from adbc_driver_duckdb import dbapi as duckdb  # noqa: PLC0415

        return duckdb.connect(place.address, autocommit=True)
    from adbc_driver_sqlite import dbapi as sqlite  # noqa: PLC0415

    connection = sqlite.connect(place.address, autocommit=True)
    if is_new:  # readers and the sink then do not wait for each other; the file keeps this mode
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.fetchall()
    return connection


def _require_usable(place: Place) -> bool:
    """Check the file of a database: the drivers' own words for a missing folder mislead. Returns True if it is new."""
    file = Path(place.address)
    if not file.parent.is_dir():
        raise Misconfigured(f"{place.product} {file}: there is no folder {file.parent}: create it")
    is_new = not file.exists()
    if not os.access(file.parent if is_new else file, os.W_OK):
        raise Misconfigured(f"{place.product} {file}: this user may not write {'into the folder' if is_new else 'the file'}")
    return is_new


class Database:
    """One connection. Not thread-safe. Outside of `transaction`, each statement commits by itself."""

    def __init__(self, place: Place, connection: dbapi.Connection) -> None:
        self.place = place
        self._connection = connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block does, or nothing of it. If the commit raises, the database may have done it all the same."""
        low = self._connection.adbc_connection  # the object above it takes a later change of this mode for none
        with mapped(self.place):
            low.set_autocommit(False)
        try:
            yield
        except BaseException:  # an interrupt too
            with suppress(adbc_driver_manager.Error):
                low.rollback()
                low.set_autocommit(True)
            raise
        with mapped(self.place):
            low.commit()
            low.set_autocommit(True)

    def execute(self, statement: str, *parameters: str | int) -> list[tuple[Any, ...]]:
        """Execute one statement. Returns its rows."""
        # DuckDB's driver takes a statement with parameters for another ingestion, on a cursor that has ingested rows.
        with mapped(self.place), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def columns_of(self, table: str) -> list[str] | None:
        """Return the columns of a table, None if there is none."""
        rows = self.execute(*list_columns(self.place.kind, table))
        return [row[0] for row in rows] or None

    def create(self, table: str, columns: Sequence[Column], never_null: Sequence[str], *, hypertable: bool) -> None:
        """Create a sink's table, which there is not."""
        with self.transaction():
            for each in create_target(self.place.kind, table, columns, never_null, hypertable=hypertable):
                self.execute(each)

    def is_empty(self, table: str) -> bool:
        """Return True if a table has no row."""
        return not self.execute(f"SELECT 1 FROM {quoted(table)} LIMIT 1")  # noqa: S608 - quoted

    def empty(self, table: str) -> None:
        """Delete every row of a table."""
        self.execute(f"{DIALECTS[self.place.kind].empty} {quoted(table)}")

    def insert(self, table: str, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> int:
        """Insert rows. Returns their number. Raises what the iteration raises."""
        if DIALECTS[self.place.kind].inserts_by_name:
            return self._ingest(table, schema, rows, mode="append")
        count = self._ingest(STAGED, schema, rows, mode="create", temporary=True)
        names = listed(schema.names)
        self.execute(f"INSERT INTO {quoted(table)} ({names}) SELECT {names} FROM {STAGED}")  # noqa: S608 - quoted
        self.execute(f"DROP TABLE {STAGED}")
        return count

    def delete(self, table: str, schema: pa.Schema, identities: Iterable[pa.RecordBatch], never_null: Sequence[str]) -> int:
        """Delete the rows with these identities. Returns the number of identities. Raises what the iteration raises."""
        count = self._ingest(DELETED, schema, identities, mode="create", temporary=True)
        for each in delete_rows(self.place.kind, table, schema.names, never_null):
            self.execute(each)
        self.execute(f"DROP TABLE {DELETED}")
        return count

    def _ingest(self, table: str, schema: pa.Schema, rows: Iterable[pa.RecordBatch], **how: Any) -> int:
        handed = _HandedRows(schema, rows)
        name_space, name = _parts(table)
        try:
            with mapped(self.place), self._connection.cursor() as cursor:
                cursor.adbc_ingest(name, handed.reader(), db_schema_name=name_space, **how)
        finally:
            handed.check()
        return handed.count

    def prepare_position(self, name: str) -> None:
        """Create the table of positions and this sink's row, if they are missing."""
        if self.columns_of(TABLE) is None:
            self.execute(create_positions())
        self.execute(insert_position(), name, *_values(NOTHING))

    def lock_position(self, name: str) -> Position:
        """Return a sink's position, which no other process can write until the transaction ends."""
        self.execute(lock_position(self.place.kind), name)
        (row,) = self.execute(read_positions(one=True), name)
        return Position(*row[1:])

    def set_position(self, name: str, position: Position) -> None:
        """Set a sink's position."""
        self.execute(update_position(), *_values(position), name)

    def positions(self) -> dict[str, Position]:
        """Return the position of every sink that has run on this database."""
        if self.columns_of(TABLE) is None:
            return {}
        return {row[0]: Position(*row[1:]) for row in self.execute(read_positions(one=False))}


class _HandedRows:
    """Rows for a driver. DuckDB's takes an error of the iteration for the end of the rows, so `check` raises it."""

    def __init__(self, schema: pa.Schema, rows: Iterable[pa.RecordBatch]) -> None:
        self.count = 0
        self._schema = schema
        self._rows = rows
        self._failure: BaseException | None = None

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._iterate())

    def _iterate(self) -> Iterator[pa.RecordBatch]:
        try:
            for each in self._rows:
                self.count += each.num_rows
                yield each
        except BaseException as failure:  # an interrupt too: it goes to whoever waits for the driver
            self._failure = failure
            raise

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _values(position: Position) -> list[str | int]:
    return [getattr(position, each) for each in COLUMNS]


def _parts(table: str) -> tuple[str | None, str]:
    schema, dot, name = table.rpartition(".")
    return (schema if dot else None), name
