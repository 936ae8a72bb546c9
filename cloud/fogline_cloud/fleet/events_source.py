"""Table `events` as far as a summary needs it: files by day, entries of the log, and rows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fogline.errors import Misconfigured
from fogline_cloud.fleet.summary import READ, TEXTS
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import EVENTS, arrow_schema
from fogline_cloud.flows.tables.table_features import reader_problems
from fogline_cloud.flows.tables.table_log import state_of
from fogline_cloud.ledger.day_changes import Commit, commit_of
from fogline_cloud.store.failure import failure_of

_ROWS = 1 << 20  # rows in memory at the same time
_TYPES = arrow_schema(each for each in EVENTS if each.name in READ)
_TEXT = pa.dictionary(pa.int32(), pa.string())


class EventsSource:
    """One version of table `events`. `rows`: number of rows of each day, None where the log does not say."""

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        table = opened(folder)
        if table is None:
            raise Misconfigured(f"{folder.path}: there is no table: start the flow first")
        self.version: int = table.version()
        self.table_id = str(table.metadata().id)
        self.files: dict[str, dict[str, int]] = defaultdict(dict)
        self.rows: dict[str, int | None] = {}
        known = pa.table(table.get_add_actions(flatten=True))
        counts = known.column("num_records").to_pylist() if "num_records" in known.column_names else [None] * len(known)
        days, paths, sizes = (known.column(name).to_pylist() for name in ("partition.day", "path", "size_bytes"))
        for day, path, size, count in zip(map(str, days), paths, sizes, counts, strict=True):
            self.files[day][path] = size
            former = self.rows.get(day, 0)
            self.rows[day] = None if former is None or count is None else former + count

    def entries(self, version: int) -> list[Mapping[str, Commit]] | None:
        """Return the log's entries after a version, None if it does not have all of them any more."""
        if version > self.version:
            return None
        system = self._folder.file_system()
        found: list[Mapping[str, Commit]] = []
        try:
            for number in range(version + 1, self.version + 1):
                with system.open_input_file(f"_delta_log/{number:020}.json") as source:
                    found.append(commit_of(line for line in source.read().splitlines() if line.strip()))
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        except (OSError, DeltaError) as error:
            raise failure_of(error, self._folder.path) from None
        return found

    def has_day(self, day: str, version: int) -> bool:
        """Return True if the table had rows of a day in an earlier version; False also if nobody knows any more."""
        try:
            table = DeltaTable(self._folder.uri, version, storage_options=self._folder.storage)
            return day in map(str, pa.table(table.get_add_actions(flatten=True)).column("partition.day").to_pylist())
        except (DeltaError, OSError):
            return False

    def read(self, paths: Iterable[str]) -> Iterator[pa.Table]:
        """Yield the rows of these files, many at a time. Raises `FileNotFoundError` if one is gone."""
        waiting: list[pa.Table] = []
        count = 0
        for path in paths:
            for rows in self._read_file(path):
                if count + len(rows) > _ROWS and waiting:
                    yield pa.concat_tables(waiting)
                    waiting, count = [], 0
                waiting.append(rows)
                count += len(rows)
        if waiting:
            yield pa.concat_tables(waiting)

    def _read_file(self, path: str) -> Iterator[pa.Table]:
        try:
            with self._folder.file_system().open_input_file(unquote(path)) as source:
                file = pq.ParquetFile(source, read_dictionary=list(TEXTS))
                leaves = [file.schema.column(number).path for number in range(len(file.schema))]
                wanted = [leaf for leaf in leaves if leaf.partition(".")[0] in READ]
                for batch in file.iter_batches(_ROWS, columns=wanted):
                    yield _conformed(pa.Table.from_batches([batch]))
        except FileNotFoundError:
            raise
        except (OSError, DeltaError, pa.ArrowInvalid) as error:
            raise failure_of(error, self._folder.path) from None


def opened(folder: TableFolder) -> DeltaTable | None:
    """Open a table that delta-rs can read rows of, None if there is none. Raises `Misconfigured`, `Unreachable`."""
    if "://" not in folder.path and not Path(folder.path, "_delta_log").is_dir():
        return None
    try:
        table = DeltaTable(folder.uri, storage_options=folder.storage)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise failure_of(error, folder.path) from None
    if found := reader_problems(state_of(table, folder.path)):
        raise Misconfigured(found[0])
    return table


def _conformed(rows: pa.Table) -> pa.Table:
    """Return the columns `READ`: files of other writers have other types of text, and older ones lack columns."""
    known = set(rows.column_names)
    return pa.table(
        {name: _one(rows.column(name), name) if name in known else pa.nulls(len(rows), _wanted(name)) for name in READ}
    )


def _one(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    wanted = _wanted(name)
    if column.type == wanted:
        return column
    if name in TEXTS:
        return column.cast(pa.string()).dictionary_encode()
    return column.cast(wanted)


def _wanted(name: str) -> pa.DataType:
    return _TEXT if name in TEXTS else _TYPES.field(name).type
