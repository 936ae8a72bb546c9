"""A table's Delta log, written by delta-rs: one commit adds the files that workers wrote to the table.

See the Delta protocol, "Add File and Remove File" and "Transaction Identifiers". Spark's own writer would move all rows again.
"""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction
from pyarrow.fs import FileType

from fogline.errors import Misconfigured
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.files import TableFolder, require_files
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.table_features import TableState, problems
from fogline_cloud.flows.tables.table_history import COMMITTED_BY, has_restore, restored, since_commit_of

_HOOK = PostCommitHookProperties(cleanup_expired_logs=False)  # it would list the log five times; maintenance does it


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


class DeltaLog:
    """The log of one existing table. `table`: its name. Not thread-safe. Raises `Misconfigured` if it cannot be opened."""

    def __init__(self, table: str, folder: TableFolder) -> None:
        self.folder = folder
        self.table = table
        try:
            self._table = DeltaTable(folder.uri, storage_options=folder.storage)
        except (DeltaError, OSError) as error:
            line = str(error).partition("\n")[0]
            raise Misconfigured(
                f"[flow] tables: {folder.path} cannot be opened by delta-rs: {line} (see [flow.storage])"
            ) from None
        self._system = folder.file_system()
        self._seen = self._table.version()
        self._own = 0  # commits of this object since `_seen`
        self._require_usable()

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
        names = [f"_delta_log/{number:020}.json" for number in (version, version + 1)]
        own, following = (each.type is not FileType.NotFound for each in self._system.get_file_info(names))
        if following or not own:
            self._table.update_incremental()
        return self._table

    def take_over(self, owner: Owner, marks: Mapping[str, int], files: Sequence[File] = (), at: int | None = None) -> None:
        """Commit this owner, with further transactions `marks` and `files`. Raises `Misconfigured` if another flow came first.

        `at`: the only version of the table that the commit may follow.
        """
        if self.epoch_of(owner) >= owner.epoch:
            raise owner.superseded(self.folder.path)
        if at is not None and self.version() != at:
            raise Misconfigured(f"{self.folder.path}: the table has changed meanwhile: stop the flow, then run this again")
        self._commit(_actions(files), {**owner.marks, **marks}, owner)

    def append(self, files: Sequence[File], batch: MicroBatch, owner: Owner) -> bool:
        """Commit files (or none) as the rows of one batch. Returns False, and does nothing, if the batch is committed already.

        Raises `Misconfigured` if `owner` is not the owner any more, the table was restored, or a file is missing or incomplete.
        """
        self.snapshot()
        self._require(owner)
        application = batch.application(self.table)
        newest = self._table.transaction_version(application)
        if newest is not None and newest >= batch.number:
            return False
        require_files(self.folder, files)
        self._commit(_actions(files), {**owner.marks, application: batch.number}, owner)
        return True

    def _require(self, owner: Owner) -> None:
        """Raise unless `owner` owns this snapshot, and the table was not restored since the last commit."""
        if any(self._table.transaction_version(application) != owner.epoch for application in owner.applications):
            raise owner.superseded(self.folder.path)
        version = self._table.version()
        # Reading the history lists the log, so only if others have committed.
        if version > self._seen + self._own:
            if has_restore(self._table.history(version - self._seen)):
                raise restored(self.folder.path)
            self._require_usable()
        self._seen, self._own = version, 0

    def _require_usable(self) -> None:
        """Raise `Misconfigured` if the table has a feature that the flow's writers would break."""
        if found := problems(state_of(self._table, self.folder.path), schema.TABLES[self.table]):
            raise Misconfigured(found[0])

    def _commit(self, actions: list[AddAction], marks: Mapping[str, int], owner: Owner) -> None:
        """Commit on the current snapshot. Delta refuses the commit if a concurrent one has one of the same applications."""
        now_ms = int(time.time() * 1000)
        properties = CommitProperties(
            app_transactions=[Transaction(application, version, now_ms) for application, version in marks.items()],
            custom_metadata={COMMITTED_BY: owner.name},
        )
        try:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=["day"],
                commit_properties=properties,
                post_commithook_properties=_HOOK,
            )
            self._own += 1
        except CommitFailedError:
            if any(self.version_of(application) != epoch for application, epoch in owner.marks.items()):
                raise owner.superseded(self.folder.path) from None
            raise

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


def file_sizes(table: DeltaTable) -> dict[str, int]:
    """Return path and size in bytes of each file of the loaded version."""
    return _sizes(pa.table(table.get_add_actions(flatten=True)))


def _sizes(files: pa.Table) -> dict[str, int]:
    return dict(zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True))


def _actions(files: Sequence[File]) -> list[AddAction]:
    return [AddAction(each.path, each.size, {"day": each.day}, each.modified_ms, True, each.stats) for each in files]
