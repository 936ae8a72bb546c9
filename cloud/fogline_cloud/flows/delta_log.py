"""A table's Delta log, written by delta-rs: files that workers left in its folder become rows, in one commit.

Delta protocol, sections "Add File and Remove File" and "Transaction Identifiers". Spark's own writer would have every
row go through the JVM once more; here the driver says a few words about files, which takes milliseconds.
"""

import time
from collections.abc import Sequence
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from fogline.errors import Misconfigured
from fogline_cloud.flows.batch import Batch, File
from fogline_cloud.flows.files import Folder


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

    def newest(self, batch: Batch) -> int:
        """The highest batch of this batch's run that is committed, -1 for none."""
        self._table.update_incremental()
        version = self._table.transaction_version(batch.application(self._what))
        return -1 if version is None else int(version)

    def append(self, files: Sequence[File], batch: Batch) -> None:
        """Commit files as one batch's rows. Does nothing if the batch is committed already."""
        if not files or self.newest(batch) >= batch.number:
            return
        mark = Transaction(batch.application(self._what), batch.number, int(time.time() * 1000))
        self._table.create_write_transaction(
            [AddAction(each.path, each.size, {"day": each.day}, each.modified_ms, True, each.stats) for each in files],
            mode="append",
            schema=self._table.schema(),
            partition_by=["day"],
            commit_properties=CommitProperties(app_transactions=[mark]),
        )

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
