"""A table's Delta log, read by delta-rs: versions, transactions, and files."""

import json
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileType

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.table_features import TableState, problems
from fogline_cloud.flows.tables.table_history import has_restore, since_commit_of
from fogline_cloud.store.failure import failure_of


def state_of(table: DeltaTable, path: str) -> TableState:
    """Return protocol and metadata of the loaded version of a table."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    return TableState(
        path=path,
        features=features,
        properties=metadata.configuration,
        fields=json.loads(table.schema().to_json())["fields"],
        partitioned_by=metadata.partition_columns,
        hides_rows="deletionVectors" in features and any(each.num_rows for each in table.deletion_vectors()),
    )


class TableLog:
    """The log of one existing table. `table`: its name. Not thread-safe. Raises `Misconfigured` if it cannot be opened."""

    def __init__(self, table: str, folder: TableFolder) -> None:
        self.folder = folder
        self.table = table
        try:
            self._table = DeltaTable(folder.uri, storage_options=folder.storage)
        except (DeltaError, OSError) as error:
            raise failure_of(error, f"[flow] tables: {folder.path} cannot be opened by delta-rs") from None
        self._system = folder.file_system()
        self.require_usable()

    def newest(self, batch: MicroBatch) -> int:
        """Return the number of the newest committed batch of this batch's run, -1 for none."""
        found = self.version_of(batch.application(self.table))
        return -1 if found is None else found

    def version_of(self, application: str) -> int | None:
        """Return the version of a transaction application, `None` if the table does not know it."""
        version: int | None = self.snapshot().transaction_version(application)
        return version

    def epoch_of(self, owner: Owner) -> int:
        """Return the epoch of the newest owner of the same name or of one of the same topics, 0 for none."""
        return max(self.version_of(application) or 0 for application in owner.applications)

    def version(self) -> int:
        """Return the newest version."""
        found: int = self.snapshot().version()
        return found

    def snapshot(self) -> DeltaTable:
        """Return the table at its newest version. It must not be used after the next call."""
        # delta-rs lists the whole log, which takes as long as it is. Without the entry of its version, the log was cut off.
        version = self._table.version()
        names = [_entry(number) for number in (version, version + 1)]
        own, following = (each.type is not FileType.NotFound for each in self._system.get_file_info(names))
        if following or not own:
            self._table.update_incremental()
        return self._table

    def rows(self) -> pads.Dataset:
        """Return the rows of the newest version, to scan before the next call."""
        return self.snapshot().to_pyarrow_dataset(filesystem=self.folder.for_scans())

    def read_entry(self, version: int) -> bytes | None:
        """Return the content of the log's entry of a version, `None` if there is none."""
        try:
            with self._system.open_input_file(_entry(version)) as file:
                content: bytes = file.read()
        except FileNotFoundError:
            return None
        return content

    def is_restored(self, name: str) -> bool:
        """Return True if the table was restored after the last commit of the flow `name` (`Owner.name`)."""
        commits = since_commit_of(self.snapshot(), name)
        return commits is not None and has_restore(commits[:-1])  # without a commit, a restore removes nothing

    def holding(self, batch: MicroBatch) -> list[str]:
        """Return the paths of files that may hold rows of this batch (and of others)."""
        return list(self._overlapping("batch", (batch.number, batch.number)))

    def recorded_within(self, span: tuple[datetime, datetime], since: date) -> dict[str, int]:
        """Return path and size of files, of `since` and later days, that may hold events recorded within the span."""
        return self._overlapping("recordedtime", span, since)

    def _overlapping(self, column: str, span: tuple[Any, Any], since: date = date.min) -> dict[str, int]:
        known = pa.table(self.snapshot().get_add_actions(flatten=True))
        if f"min.{column}" not in known.column_names:
            return {}
        least, greatest = known.column(f"min.{column}"), known.column(f"max.{column}")
        first, last = (pa.scalar(each, least.type) for each in span)
        may = pc.fill_null(pc.and_(pc.less_equal(least, last), pc.greater_equal(greatest, first)), True)
        recent = pc.greater_equal(known.column("partition.day"), pa.scalar(since))
        return _sizes(known.filter(pc.and_(may, recent)))

    def require_usable(self) -> None:
        """Raise `Misconfigured` if the table has a feature that the flow's writers would break."""
        if found := problems(state_of(self._table, self.folder.path), schema.TABLES[self.table]):
            raise Misconfigured(found[0])


def file_sizes(table: DeltaTable) -> dict[str, int]:
    """Return path and size in bytes of each file of the loaded version."""
    return _sizes(pa.table(table.get_add_actions(flatten=True)))


def _sizes(files: pa.Table) -> dict[str, int]:
    return dict(zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True))


def _entry(version: int) -> str:
    return f"_delta_log/{version:020}.json"
