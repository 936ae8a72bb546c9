"""A table's commits and rows, read by delta-rs and Arrow. It only reads; the flow and maintenance go on beside it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.table_features import reader_problems
from fogline_cloud.flows.tables.table_log import state_of
from fogline_cloud.sinks.commits import Holds, TableCommit, TableFile, decode
from fogline_cloud.store.failure import failure_of

_ROWS = 50_000  # rows of a file in memory at a time
_CHANGE_TYPE = "_change_type"
_IS_DELETED = {"delete", "update_preimage"}


class LogCutError(Exception):
    """The table does not have any more what the next change needs: an entry of its log, or a file. The text says which."""


class Source:
    """One table. Not thread-safe. Raises `Misconfigured` if it cannot be read, `Unreachable` if its store is away."""

    def __init__(self, folder: TableFolder) -> None:
        self.folder = folder
        self.reload()
        self._system = folder.file_system()

    def reload(self) -> None:
        """Open the table anew: its log was cut, or it was created again."""
        with self._mapped():
            self._table = self._open()
            state = state_of(self._table, self.folder.path)
        if found := reader_problems(state):
            raise Misconfigured(found[0])
        self.table_id: str = self._table.metadata().id

    def newest(self) -> int:
        """Return the newest version."""
        with self._mapped():
            self._table.update_incremental()
            version: int = self._table.version()
            return version

    def entry(self, version: int) -> bytes | None:
        """Return the log's entry of a version, None if it has none."""
        with self._mapped():
            try:
                with self._system.open_input_file(f"_delta_log/{version:020}.json") as file:
                    content: bytes = file.read()
            except FileNotFoundError:
                return None
            return content

    def commits(self, first: int, last: int) -> Iterator[TableCommit]:
        """Yield the commits of these versions. Raises `LogCutError`."""
        for version in range(first, last + 1):
            entry = self.entry(version)
            if entry is None:
                raise LogCutError(f"the log of the table does not have version {version} any more")
            commit = decode(version, entry)
            if commit.hides_rows:
                raise LogCutError(f"version {version} of the table has deletion vectors")
            yield commit

    def files(self, version: int) -> list[TableFile]:
        """Return the files of a version, always in the same order. Raises `LogCutError`."""
        try:
            table = self._open(version=version)
        except (DeltaError, OSError) as error:
            if version < self.newest():
                raise LogCutError(f"the log of the table does not lead to version {version} any more") from None
            raise failure_of(error, self.folder.path) from None
        if found := reader_problems(state_of(table, self.folder.path)):
            raise Misconfigured(found[0])
        known = pa.table(table.get_add_actions(flatten=True))
        columns = ["path", "size_bytes", "partition.day", *(["num_records"] if "num_records" in known.column_names else [])]
        files = [
            TableFile(row["path"], row["size_bytes"], _text(row["partition.day"]), row.get("num_records"))
            for row in known.select(columns).to_pylist()
        ]
        return sorted(files, key=lambda each: (each.day or "", each.path))

    def inserted(self, files: Sequence[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows that these files have added, with the columns of `schema`. Raises `LogCutError` if a file is gone."""
        for file in files:
            if file.holds is not Holds.DELETED:
                yield from self._rows(file, schema, is_deleted=False)

    def deleted(self, files: Sequence[TableFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows that a commit with these files has removed, as `inserted` does."""
        for file in files:
            if file.holds is not Holds.INSERTED:
                yield from self._rows(file, schema, is_deleted=True)

    def _rows(self, file: TableFile, schema: pa.Schema, *, is_deleted: bool) -> Iterator[pa.RecordBatch]:
        is_mixed = file.holds is Holds.CHANGES
        with self._mapped():
            try:
                with self._system.open_input_file(file.path) as source:
                    parquet = pq.ParquetFile(source)
                    known = [each for each in schema.names if each in parquet.schema_arrow.names]
                    for rows in parquet.iter_batches(_ROWS, columns=[*known, *([_CHANGE_TYPE] if is_mixed else [])]):
                        found = _conformed(rows, schema, file.day)
                        yield found.filter(_mask(rows, is_deleted=is_deleted)) if is_mixed else found
            except FileNotFoundError:
                raise LogCutError(f"the file {file.path} of the table was deleted") from None

    def _open(self, **how: Any) -> DeltaTable:
        return DeltaTable(self.folder.uri, storage_options=self.folder.storage, **how)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError:
            raise Misconfigured(f"{self.folder.path}: there is no table: start the flow first") from None
        except (DeltaError, OSError) as error:
            raise failure_of(error, self.folder.path) from None


def _mask(rows: pa.RecordBatch, *, is_deleted: bool) -> pa.Array:
    """Return which rows of a file of changes are of the deleted, or else of the inserted ones."""
    deleted = pc.is_in(rows.column(_CHANGE_TYPE).cast(pa.string()), pa.array(sorted(_IS_DELETED)))
    return deleted if is_deleted else pc.invert(deleted)


def _conformed(rows: pa.RecordBatch, schema: pa.Schema, day: str | None) -> pa.RecordBatch:
    """Return rows with exactly the columns of `schema`. Files lack the partition column; older ones may lack others."""
    known = set(rows.schema.names)
    partition = pa.scalar(date.fromisoformat(day) if day is not None else None, pa.date32())
    return pa.RecordBatch.from_arrays(
        [
            rows.column(each.name).cast(each.type)
            if each.name in known
            else pa.repeat(partition if each.name == "day" else pa.scalar(None, each.type), rows.num_rows)
            for each in schema
        ],
        schema=schema,
    )


def _text(day: date | str | None) -> str | None:
    return day.isoformat() if isinstance(day, date) else day
