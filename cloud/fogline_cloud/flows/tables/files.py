"""Parquet files in a table's folder, written and read by workers. No Spark, and no commits."""

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.batch import File

MAX_BUFFERED_BYTES = 64 << 20
"""Size of the rows that a task buffers before it writes them to a file."""
_MS_US = 1000
_PROBE_BYTES = 64  # size of the buffer of a probe: without one, delta-rs refuses the object that Arrow passes
_LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999: readers cannot parse a later time


class TableFolder(msgspec.Struct, frozen=True):
    """A table's folder: a path or a URL, and the options of delta-rs's object store for it."""

    path: str
    storage: dict[str, str] = {}

    @property
    def uri(self) -> str:
        """The folder as a URL for delta-rs."""
        return self.path if "://" in self.path else Path(self.path).absolute().as_uri()

    def file_system(self, sizes: dict[str, int] | None = None) -> pafs.FileSystem:
        """Return the folder as an Arrow file system. `sizes`: known sizes of files in bytes, which it then does not ask for."""
        return pafs.PyFileSystem(DeltaStorageHandler(self.uri, self.storage, sizes))

    def for_scans(self, sizes: dict[str, int] | None = None) -> pafs.FileSystem:
        """Return the folder as the file system for Arrow's scans of many files or columns. `sizes`: as for `file_system`.

        Their threads may outlive the scan. One that then returns to Python aborts a process that is about to end, so a local
        folder is read without Python.
        """
        if not self.uri.startswith("file:"):
            return self.file_system(sizes)
        system, path = pafs.FileSystem.from_uri(self.uri)
        return pafs.SubTreeFileSystem(path, system)


class Tables(msgspec.Struct, frozen=True):
    """The folders of the tables."""

    events: TableFolder
    readings: TableFolder
    raw: TableFolder
    fleet: TableFolder


def tables_in(folder: str, storage: dict[str, str]) -> Tables:
    """Return the tables in a folder: a path, or a URL that Spark and delta-rs both know."""
    base = folder.rstrip("/")
    return Tables(*(TableFolder(f"{base}/{name}", storage) for name in Tables.__struct_fields__))


def read_rows(folder: TableFolder, path: str, columns: list[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
    """Return the rows of one file without the partition column: all `columns` and rows, or those selected."""
    return pq.read_table(path, filesystem=folder.for_scans(), columns=columns, filters=where, partitioning=None)


def delete_below(folder: TableFolder, below: str) -> None:
    """Delete a folder within the table's folder. No commit may name a file in it."""
    with suppress(FileNotFoundError):
        folder.file_system().delete_dir(below.rstrip("/"))


class FilesGone(Misconfigured):
    """Files of a table are missing that a micro-batch needs: those that its workers wrote, or committed ones."""


def files_gone(missing: str) -> FilesGone:
    """Return the error for files that are missing time and again. `missing`: which, in words."""
    return FilesGone(
        f"{missing}. A VACUUM that keeps files for less time than a micro-batch takes (RETAIN 0 HOURS) deletes them: run it "
        "with at least 24 hours, or leave it to `fogline table maintain` (tables.vacuum_days), and start the flow again. If "
        "it stops for the same file again, a commit names that file: docs/operations.md, section Tables, says how its rows "
        "land again. On a cluster, [flow] tables must be a folder or a URL that the driver and every executor share"
    )


def require_files(folder: TableFolder, files: Sequence[File]) -> None:
    """Raise `FilesGone` if a file is not in the folder, `Misconfigured` if it has another size than its writer reported."""
    found = folder.file_system().get_file_info([each.path for each in files])
    for each, info in zip(files, found, strict=True):
        if info.size is None:
            raise files_gone(f"{folder.path}/{each.path}: a worker wrote {each.size} bytes there, and no such file is left")
        if info.size != each.size:
            raise Misconfigured(
                f"{folder.path}/{each.path}: a worker wrote {each.size} bytes there, but the driver finds {info.size} bytes: "
                "[flow] tables must be a folder or a URL that the driver and every executor share"
            )


def missing_files(folder: TableFolder, files: Sequence[File]) -> list[str]:
    """Return the paths of the files that are not in the folder."""
    return [each.path for each in folder.file_system().get_file_info([each.path for each in files]) if not each.is_file]


def write_probe(folder: TableFolder, name: str) -> None:
    """Write a small file, so that the driver can see if an executor writes into its folder. Raises `DeltaError`, `OSError`."""
    with folder.file_system().open_output_stream(name, buffer_size=_PROBE_BYTES) as out:
        out.write(b"probe")


def missing_probes(folder: TableFolder, names: Sequence[str]) -> list[str]:
    """Return the names of the probes that are not in the folder, and delete the others."""
    system = folder.file_system()
    missing = [each.path for each in system.get_file_info(list(names)) if each.type is pafs.FileType.NotFound]
    for name in set(names) - set(missing):
        system.delete_file(name)
    return missing


@dataclass
class FileWriter:
    """Collects one task's rows and writes them to files, one per day. A context manager, which deletes them after an error.

    `measured`: columns to keep statistics of. `below`: a folder within the table's folder, for temporary files.
    """

    folder: TableFolder
    measured: tuple[str, ...]
    below: str = ""
    _rows: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0
    _files: list[File] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        if kind is not None and self._files:
            system = self.folder.file_system()
            for each in self._files:
                with suppress(OSError):
                    system.delete_file(each.path)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows with a column `ingested`."""
        if rows.num_rows:
            self._rows.append(rows)
            self._bytes += rows.nbytes
        if self._bytes >= MAX_BUFFERED_BYTES:
            self._flush()

    def close(self) -> list[File]:
        """Write the remaining rows. Returns every file."""
        self._flush()
        return self._files

    def _flush(self) -> None:
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows)
        self._rows, self._bytes = [], 0
        days = rows.column("ingested").cast(pa.date32())
        for day in pc.unique(days):
            self._files.append(self._write(rows.filter(pc.equal(days, day)), day.as_py().isoformat()))

    def _write(self, rows: pa.Table, day: str) -> File:
        path = f"{self.below}day={day}/part-{uuid.uuid4()}.zstd.parquet"
        system = self.folder.file_system()
        with system.open_output_stream(path) as out:
            pq.write_table(rows, out, compression="zstd", write_statistics=list(self.measured))
        info = system.get_file_info(path)
        stats = msgspec.json.encode(statistics(rows, self.measured)).decode()
        return File(path=path, size=info.size, modified_ms=info.mtime_ns // 1_000_000, day=day, stats=stats)


def statistics(rows: pa.Table, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return Delta's statistics of a file. Times are in whole milliseconds, the latest one rounded up."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in columns:
        column = rows.column(name)
        is_time = pa.types.is_timestamp(column.type)
        ends = pc.min_max(column.cast(pa.int64()) if is_time else column).as_py()
        if ends["min"] is not None:
            least[name] = _moment(ends["min"] // _MS_US) if is_time else ends["min"]
            greatest[name] = _moment(min(-(-ends["max"] // _MS_US), _LATEST_MS)) if is_time else ends["max"]
    nulls = {name: rows.column(name).null_count for name in columns}
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def span_of(files: Sequence[File], column: str) -> tuple[datetime, datetime]:
    """Return the earliest and latest time in a measured column of these files, from their statistics, in milliseconds."""
    stats = [msgspec.json.decode(each.stats) for each in files]
    return (
        datetime.fromisoformat(min(each["minValues"][column] for each in stats)),
        datetime.fromisoformat(max(each["maxValues"][column] for each in stats)),
    )


def count_rows(files: Iterable[File]) -> int:
    """Return the number of rows in these files, from their statistics."""
    return sum(msgspec.json.decode(each.stats)["numRecords"] for each in files)


def _moment(ms: int) -> str:
    text: str = pc.strftime(pa.scalar(ms, pa.timestamp("ms", tz="UTC")), "%Y-%m-%dT%H:%M:%SZ").as_py()
    return text
