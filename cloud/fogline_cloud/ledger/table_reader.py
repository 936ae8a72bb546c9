"""Reads columns of a Delta table's files, some rows at a time, and the files of its commits."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.table_features import reader_problems
from fogline_cloud.flows.tables.table_log import state_of
from fogline_cloud.ledger.arrow_rows import TYPES, conformed
from fogline_cloud.ledger.day_changes import Commit, commit_of
from fogline_cloud.ledger.marks import TableMark
from fogline_cloud.store.failure import failure_of

_ROWS = 1 << 18  # rows of a table that are in memory at the same time, about
_NO_DAY = ""  # day of the files of a table that is not partitioned by day


class TableReader:
    """Reads columns of a table's present version. A table that does not exist is empty."""

    def __init__(self, folder: TableFolder, columns: Sequence[str]) -> None:
        self.folder = folder
        self.days: dict[str, dict[str, int]] = defaultdict(dict)
        """Sizes of the files by day and path."""
        self._columns = columns
        self._counts: dict[str, int | None] = {}  # rows of each file, as its statistics say
        self._commits: tuple[int, list[dict[str, Commit]] | None] = (-1, None)  # version that they follow, and the commits
        self._table = _open(folder)
        if self._table is not None:
            if found := reader_problems(state_of(self._table, folder.path)):
                raise Misconfigured(found[0])
            files = pa.table(self._table.get_add_actions(flatten=True))
            partitioned = "partition.day" in files.column_names
            days = files.column("partition.day").to_pylist() if partitioned else [_NO_DAY] * len(files)
            columns_of_files = (files.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
            for day, path, size, count in zip(days, *columns_of_files, strict=True):
                self.days[str(day)][path] = size
                self._counts[path] = count

    @property
    def mark(self) -> TableMark | None:
        """The identity of the table and its version; `None` if it does not exist."""
        if self._table is None:
            return None
        fields = json.loads(self._table.schema().to_json())["fields"]
        read = {*self._columns, "readings"}
        types = {each["name"]: each["type"] for each in fields if each["name"] in read}
        return TableMark(str(self._table.metadata().id), self._table.version(), types)

    def count(self, day: str) -> int | None:
        """Return the number of rows of a day, as the statistics of its files say; `None` if they do not."""
        counts = [self._counts[path] for path in self.days.get(day, ())]
        return None if None in counts else sum(each for each in counts if each is not None)

    def has(self, paths: Sequence[str]) -> bool:
        """Return True if all of these files, which earlier versions may have had, are still in the folder."""
        gone = [path for path in paths if path not in self._counts]
        return not gone or all(each.is_file for each in self.folder.file_system().get_file_info(gone))

    def commits(self, version: int, day: str) -> list[Commit] | None:
        """Return the commits after a version, as far as they concern a day; `None` if the log does not have all of them."""
        if self._commits[0] != version:
            self._commits = (version, self._read_log(version))
        found = self._commits[1]
        return None if found is None else [each[day] for each in found if day in each]

    def _read_log(self, version: int) -> list[dict[str, Commit]] | None:
        if self._table is None or version > self._table.version():
            return None
        system = self.folder.file_system()
        found = []
        try:
            for number in range(version + 1, self._table.version() + 1):
                with system.open_input_file(f"_delta_log/{number:020}.json") as source:
                    found.append(commit_of(line for line in source.read().splitlines() if line.strip()))
        except (OSError, DeltaError, msgspec.DecodeError):
            return None
        return found

    def rows(self, paths: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield rows of these files, by default of all, many at a time. Column `values` is the length of list `readings`."""
        names = self._columns if columns is None else columns
        waiting: list[pa.Table] = []
        for batch in self._batches(list(self._counts) if paths is None else paths, names):
            waiting.append(batch)
            if sum(map(len, waiting)) >= _ROWS:
                yield conformed(pa.concat_tables(waiting), names)
                waiting = []
        if waiting:
            yield conformed(pa.concat_tables(waiting), names)

    def _batches(self, paths: Sequence[str], names: Sequence[str]) -> Iterator[pa.Table]:
        if not paths:
            return
        sizes = {path: size for files in self.days.values() for path, size in files.items()}
        system = self.folder.file_system(sizes)
        texts = [name for name in names if pa.types.is_dictionary(TYPES[name])]
        for path in paths:
            with system.open_input_file(path) as source:
                file = pq.ParquetFile(source, read_dictionary=texts)
                for batch in file.iter_batches(_ROWS, columns=_leaves(file, names)):
                    yield conformed(_counted(pa.Table.from_batches([batch])), names)


def _leaves(file: pq.ParquetFile, names: Sequence[str]) -> list[str]:
    """Return the columns to read. Of the list of readings, one member tells its length."""
    paths = [file.schema.column(number).path for number in range(len(file.schema))]
    ordinals = [path for path in paths if path.startswith("readings.") and path.endswith(".ordinal")]
    return [path for path in paths if path in names] + ordinals * ("values" in names)


def _counted(rows: pa.Table) -> pa.Table:
    if "readings" not in rows.column_names:
        return rows
    return rows.append_column("values", pc.fill_null(pc.list_value_length(rows.column("readings")), 0))


def _open(folder: TableFolder) -> DeltaTable | None:
    if "://" not in folder.path and not Path(folder.path, "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(folder.uri, storage_options=folder.storage)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise failure_of(error, f"table {folder.path} cannot be read") from None
