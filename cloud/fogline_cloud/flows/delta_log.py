"""A table's Delta log, written by delta-rs: files that workers left in its folder become rows, in one commit.

Delta protocol, sections "Add File and Remove File" and "Transaction Identifiers". Spark's own writer would have every
row go through the JVM once more; here the driver says a few words about files, which takes milliseconds.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from fogline.errors import Misconfigured
from fogline_cloud.flows.batch import Batch, File
from fogline_cloud.flows.files import Folder, require_files
from fogline_cloud.flows.owner import Owner

_COMMITTED_BY = "foglineFlow"
"""Key of the commit information that names the flow."""
_RECENT = 20
"""How many commits are read before all of them are."""


class DeltaLog:
    """The log of one table that is there. `what`: the table's name. Raises `Misconfigured` if it cannot be opened."""

    def __init__(self, what: str, folder: Folder) -> None:
        self.folder = folder
        self._what = what
        try:
            self._table = DeltaTable(folder.uri, storage_options=folder.storage)
        except (DeltaError, OSError) as error:
            line = str(error).partition("\n")[0]
            raise Misconfigured(
                f"[flow] tables: {folder.path} cannot be opened by delta-rs: {line} (see [flow.storage])"
            ) from None
        self._seen = self._table.version()

    def newest(self, batch: Batch) -> int:
        """The highest batch of this batch's run that is committed, -1 for none."""
        found = self.version_of(batch.application(self._what))
        return -1 if found is None else found

    def version_of(self, application: str) -> int | None:
        """The version of a transaction application, `None` if the table has none of it."""
        self._table.update_incremental()
        version: int | None = self._table.transaction_version(application)
        return version

    def claim(self, owner: Owner, marks: Mapping[str, int]) -> None:
        """Make this the owner, with further transactions `marks`. Raises `Misconfigured` if another flow was quicker."""
        if (self.version_of(owner.application) or 0) >= owner.epoch:
            raise owner.superseded(self.folder.path)
        self._commit([], {**owner.marks, **marks}, owner)

    def append(self, files: Sequence[File], batch: Batch, owner: Owner) -> None:
        """Commit files as one batch's rows; there may be none. Does nothing if the batch is committed already.

        Raises `Misconfigured` if `owner` is no longer the owner, the table was restored, or a file is not there as written.
        """
        self._table.update_incremental()
        self._require(owner)
        application = batch.application(self._what)
        newest = self._table.transaction_version(application)
        if newest is None or newest < batch.number:
            require_files(self.folder, files)
            actions = [AddAction(each.path, each.size, {"day": each.day}, each.modified_ms, True, each.stats) for each in files]
            self._commit(actions, {**owner.marks, application: batch.number}, owner)

    def _require(self, owner: Owner) -> None:
        """Raise unless this snapshot's owner is `owner`, and nobody has restored the table since the last commit."""
        if self._table.transaction_version(owner.application) != owner.epoch:
            raise owner.superseded(self.folder.path)
        version = self._table.version()
        if version > self._seen and self._has_restore(self._table.history(version - self._seen)):
            raise self.restored()
        self._seen = version

    def _commit(self, actions: list[AddAction], marks: Mapping[str, int], owner: Owner) -> None:
        """Commit on the snapshot at hand. Delta refuses it if a concurrent commit has one of the same applications."""
        now_ms = int(time.time() * 1000)
        properties = CommitProperties(
            app_transactions=[Transaction(application, version, now_ms) for application, version in marks.items()],
            custom_metadata={_COMMITTED_BY: owner.name},
        )
        try:
            self._table.create_write_transaction(
                actions, mode="append", schema=self._table.schema(), partition_by=["day"], commit_properties=properties
            )
        except CommitFailedError:
            if any(self.version_of(application) != epoch for application, epoch in owner.marks.items()):
                raise owner.superseded(self.folder.path) from None
            raise

    def is_restored(self, name: str) -> bool:
        """Whether the table was restored to an earlier version after the last commit of the flow `name` (`Owner.name`)."""
        self._table.update_incremental()
        for limit in (_RECENT, None):
            commits = self._table.history(limit)
            last = next((at for at, commit in enumerate(commits) if commit.get(_COMMITTED_BY) == name), None)
            if last is not None:
                return self._has_restore(commits[:last])
        return False  # no commit of this flow: it has no expectation of the table

    def restored(self) -> Misconfigured:
        """The error for a table that was restored."""
        return Misconfigured(
            f"{self.folder.path}: the table was restored to an earlier version, so rows of finished batches are missing: "
            "restore both tables to the same moment, then delete the folder of [flow] checkpoint, and the flow goes on "
            "from where the tables end"
        )

    @staticmethod
    def _has_restore(commits: list[dict[str, Any]]) -> bool:
        return any(commit.get("operation") == "RESTORE" for commit in commits)

    def holding(self, batch: Batch) -> list[str]:
        """Paths of the files that may hold rows of this batch, beside others."""
        self._table.update_incremental()
        known = pa.table(self._table.get_add_actions(flatten=True))
        if "min.batch" not in known.column_names:
            return []
        least, greatest = known.column("min.batch"), known.column("max.batch")
        may = pc.and_(pc.less_equal(least, batch.number), pc.greater_equal(greatest, batch.number))
        return [str(path) for path in known.filter(pc.fill_null(may, True)).column("path").to_pylist()]

    def recorded_within(self, span: tuple[datetime, datetime], since: date) -> list[str]:
        """Paths of the files that may hold events recorded within the span, of `since` and the days after it."""
        self._table.update_incremental()
        known = pa.table(self._table.get_add_actions(flatten=True))
        if "min.recordedtime" not in known.column_names:
            return []
        first, last = (pa.scalar(each, known.schema.field("min.recordedtime").type) for each in span)
        least, greatest = known.column("min.recordedtime"), known.column("max.recordedtime")
        may = pc.fill_null(pc.and_(pc.less_equal(least, last), pc.greater_equal(greatest, first)), True)
        recent = pc.greater_equal(known.column("partition.day"), pa.scalar(since))
        return [str(path) for path in known.filter(pc.and_(may, recent)).column("path").to_pylist()]
