"""A table as Parquet files, one a day. A file is whole or not there, and a later run writes only days that have changed."""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from hashlib import sha256
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import TABLES, arrow_schema, in_file
from fogline_cloud.sinks.commits import TableFile
from fogline_cloud.sinks.source import LogCutError, Source

_FILES = b"fogline.files"
"""Key in a file's metadata: digest of the table's files whose rows it has."""
_GROUP_ROWS = 500_000


class ExportedDay(msgspec.Struct, frozen=True):
    """The file of one day. `is_new`: this run wrote it; else it had these rows already."""

    day: str
    path: str
    rows: int
    is_new: bool


class _StoppedError(Exception):
    """`stop` was set while a file was written."""


def export(
    folder: TableFolder,
    table: str,
    into: Path,
    stop: threading.Event,
    on_day: Callable[[ExportedDay], None],
    *,
    first: date | None = None,
    end: date | None = None,
) -> bool:
    """Write the days from `first` up to `end`, all by default, as `into/TABLE/day=DAY/TABLE.parquet`.

    Returns False if `stop` was set before the last day. Files of days that the table does not have any more stay. Raises
    `Misconfigured` if the table cannot be read, or the folder cannot be written.
    """
    source = Source(folder)
    days: dict[str, list[TableFile]] = defaultdict(list)
    for each in source.files(source.newest()):
        if (
            each.day is not None
            and (first is None or first.isoformat() <= each.day)
            and (not end or each.day < end.isoformat())
        ):
            days[each.day].append(each)
    for day, files in sorted(days.items()):
        if stop.is_set():
            return False
        path = into / table / f"day={day}" / f"{table}.parquet"
        digest = sha256("\n".join(each.path for each in files).encode()).hexdigest().encode()
        rows = _rows_of(path, digest)
        try:
            written = rows if rows is not None else _write(source, table, files, path, digest=digest, stop=stop)
        except _StoppedError:
            return False
        except LogCutError as error:
            raise Misconfigured(f"{error} meanwhile: run this again") from None
        except OSError as error:
            raise Misconfigured(f"{path}: {error.strerror or error}") from None
        on_day(ExportedDay(day, str(path), written, rows is None))
    return True


def _rows_of(path: Path, digest: bytes) -> int | None:
    """Return the number of rows of a file that was written from these files of the table, else None."""
    with suppress(OSError, pa.ArrowInvalid):
        found = pq.read_metadata(path)
        if (found.metadata or {}).get(_FILES) == digest:
            rows: int = found.num_rows
            return rows
    return None


def _write(source: Source, table: str, files: Sequence[TableFile], path: Path, *, digest: bytes, stop: threading.Event) -> int:
    schema = arrow_schema(in_file(TABLES[table]))
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    rows = 0
    try:
        with pq.ParquetWriter(unfinished, schema.with_metadata({_FILES: digest}), compression="zstd") as writer:
            for group in _groups(source.inserted(files, schema)):
                if stop.is_set():
                    raise _StoppedError
                writer.write_table(group)
                rows += group.num_rows
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables of `_GROUP_ROWS` rows, about: each becomes a row group."""
    held: list[pa.RecordBatch] = []
    for each in batches:
        if sum(one.num_rows for one in held) >= _GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held = []
        held.append(each)
    if held:
        yield pa.Table.from_batches(held)
