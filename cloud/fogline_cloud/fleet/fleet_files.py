"""One version of table `fleet`: its rows by day, and the commit that replaces those of some days."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from fogline_cloud.fleet.events_source import opened
from fogline_cloud.fleet.summary import STORED
from fogline_cloud.flows.tables.files import TableFolder, statistics
from fogline_cloud.flows.tables.schema import FLEET, MEASURED
from fogline_cloud.store.failure import failure_of

_COMMITS = "fogline/fleet"  # Delta transaction of each commit: Delta refuses one of two that follow the same version
_HOOK = PostCommitHookProperties(cleanup_expired_logs=False)


class FleetFiles:
    """One version of the table, `version` None if there is no table. `days`: those that have rows.

    Raises `Misconfigured`, and `Unreachable` if the store is away.
    """

    def __init__(self, folder: TableFolder) -> None:
        self._folder = folder
        self._table = opened(folder)
        self._files: dict[str, list[tuple[str, int]]] = {}
        if self._table is not None:
            known = pa.table(self._table.get_add_actions(flatten=True))
            columns = (known.column(name).to_pylist() for name in ("partition.day", "path", "size_bytes"))
            for day, path, size in zip(*columns, strict=True):
                self._files.setdefault(str(day), []).append((path, size))
        self.version: int | None = None if self._table is None else self._table.version()
        self.days = sorted(self._files)

    def create(self) -> None:
        """Create the table, unless another program has meanwhile. Look at it anew afterwards."""
        meanings = {column.name: {"comment": column.meaning} for column in FLEET}
        schema = STORED.append(pa.field("day", pa.date32()))
        with self._mapped():
            DeltaTable.create(
                self._folder.uri,
                pa.schema([each.with_metadata(meanings[each.name]) for each in schema]),
                mode="ignore",
                partition_by=["day"],
                storage_options=self._folder.storage,
                configuration={"delta.dataSkippingStatsColumns": ",".join(MEASURED["fleet"])},
            )

    def stands_for(self, table_id: str) -> int | None:
        """Return the version of table `events`, by its id, that was counted."""
        version: int | None = None if self._table is None else self._table.transaction_version(_application(table_id))
        return version

    def read(self, day: str, columns: Sequence[str] = STORED.names) -> pa.Table:
        """Return the rows of a day. Raises `FileNotFoundError` if another program has replaced and deleted them."""
        found = [STORED.empty_table().select(columns)]
        if sizes := dict(self._files.get(day, ())):
            with self._mapped():
                for path in sizes:
                    rows = pq.read_table(
                        path, filesystem=self._folder.for_scans(sizes), columns=list(columns), partitioning=None
                    )
                    found.append(rows.select(list(columns)).cast(found[0].schema))
        return pa.concat_tables(found)

    def replace(self, days: Mapping[str, pa.Table], table_id: str, version: int | None) -> None:
        """Replace the rows of these days in one commit, by which the table stands for this version of `events`.

        `version` None: it stands for what it did. Raises `CommitFailedError` if another commit of ours came first.
        """
        assert self._table is not None
        table, now_ms = self._table, time.time_ns() // 1_000_000
        added = [self._write(day, rows, now_ms) for day, rows in days.items() if len(rows)]
        removed = [
            RemoveAction(path, True, now_ms, size, {"day": day}) for day in days for path, size in self._files.get(day, ())
        ]
        marks = {_COMMITS: 1} if version is None else {_COMMITS: 1, _application(table_id): version}
        properties = CommitProperties(app_transactions=[Transaction(name, each, now_ms) for name, each in marks.items()])
        with self._mapped():
            table.create_write_transaction(
                [*removed, *added],
                mode="append",
                schema=table.schema(),
                partition_by=["day"],
                commit_properties=properties,
                post_commithook_properties=_HOOK,
            )

    def _write(self, day: str, rows: pa.Table, now_ms: int) -> AddAction:
        path = f"day={day}/part-{uuid.uuid4()}.zstd.parquet"
        with self._mapped():
            system = self._folder.file_system()
            with system.open_output_stream(path) as out:
                pq.write_table(rows.sort_by("device"), out, compression="zstd", write_statistics=list(MEASURED["fleet"]))
            size = system.get_file_info(path).size
        stats = msgspec.json.encode(statistics(rows, MEASURED["fleet"])).decode()
        return AddAction(path, size, {"day": day}, now_ms, True, stats)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except (CommitFailedError, FileNotFoundError):
            raise
        except (DeltaError, OSError) as error:
            raise failure_of(error, self._folder.path) from None


def _application(table_id: str) -> str:
    return f"fogline/fleet/{table_id}"
