"""Files that the commits of a replay remove and add: whole files go, and workers write anew what stays of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows.replay.missing import MISSING
from fogline_cloud.flows.replay.staging import ReplayFolders, StagedReplay, keep_events, keep_readings
from fogline_cloud.flows.replay.swap import HoldingFile, holding, rows_of
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.batch import File
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.schema import STORED, EventOutcome, conformed
from fogline_cloud.flows.worker.derive import reading_rows

KEY = ["run", "batch", "topic", "partition", "offset"]
"""What identifies a row of `events`."""
ROWS = schema.ddl(schema.in_file(schema.EVENTS))
_NAMES = schema.names(schema.in_file(schema.EVENTS))
READINGS = schema.ddl(schema.in_file(schema.READINGS))
_READING_NAMES = schema.names(schema.in_file(schema.READINGS))

FileChange = tuple[list[HoldingFile], list[File]]
"""Files to remove, and files to add."""


@dataclass(frozen=True, kw_only=True)
class Landing:
    """The changes of both tables that a replay makes. `predicate`: the micro-batches with a changed event.

    `before`: rows of `events`. `stage`: lets workers write files.
    """

    spark: SparkSession
    events: DeltaLog
    readings: DeltaLog
    before: DataFrame
    folders: ReplayFolders
    staged: StagedReplay
    predicate: str
    stage: Callable[[DataFrame, Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]], StagedReplay]

    def changed_events(self) -> FileChange:
        """Replace the changed rows of `events`."""
        found = holding(self.spark, self.events, self.predicate)
        if not found.others and found.selected == self._replaced:
            return found.files, self.staged.events
        rows = rows_of(self.spark, self.events, found).join(self._keys, KEY, "left_anti")
        return found.files, self.staged.events + self.stage(rows, partial(keep_events, self.folders)).events

    def changed_readings(self) -> FileChange:
        """Replace the readings of these micro-batches."""
        found = holding(self.spark, self.readings, self.predicate)
        added = list(self.staged.readings)
        if self._has_kept:
            added += self._written(self._readings_of(self._kept))
        if found.others:
            rows = rows_of(self.spark, self.readings, found)
            added += self._written(rows.where(~F.coalesce(F.expr(self.predicate), F.lit(False))))
        return found.files, added

    def only_added_readings(self) -> list[File] | None:
        """Return the files to add if no reading has to go, because streaming readers see only what is added. Else `None`.

        No changed event had readings then, unless a replay was killed after it had added them.
        """
        if any(each.was == EventOutcome.OK for each in self.staged.outcomes):
            return None
        rows = self.spark.read.format("delta").load(self.readings.folder.path).where(self.predicate)
        count = F.sum(F.when(F.col("outcome") == EventOutcome.OK, F.size("readings")))
        kept = (self._kept.agg(count).collect()[0][0] or 0) if self._has_kept else 0
        if rows.count() == kept:
            return list(self.staged.readings)
        present = rows.select(_READING_NAMES)
        wanted = self.new_readings
        if not present.exceptAll(wanted).isEmpty():
            return None
        return self._written(wanted.exceptAll(present))

    @property
    def new_events(self) -> DataFrame:
        """The rows of these micro-batches, as they will be."""
        return self._changed.unionByName(self._kept)

    @property
    def new_readings(self) -> DataFrame:
        """The readings of these micro-batches, as they will be."""
        return self._readings_of(self.new_events)

    @property
    def _changed(self) -> DataFrame:
        files = (f"{self.events.folder.path}/{each.path}" for each in self.staged.events)
        return self.spark.read.schema(ROWS).parquet(*files)

    @property
    def _keys(self) -> DataFrame:
        return self._changed.select(KEY)

    @property
    def _kept(self) -> DataFrame:
        """The rows of these micro-batches that stay."""
        return self.before.where(self.predicate).join(self._keys, KEY, "left_anti").select(_NAMES)

    @property
    def _replaced(self) -> int:
        """The number of rows that go."""
        return sum(each.events for each in self.staged.outcomes if each.was != MISSING)

    @cached_property
    def _has_kept(self) -> bool:
        count: int = self.before.where(self.predicate).count()
        return count > self._replaced

    def _readings_of(self, rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(_reading_batches, READINGS)

    def _written(self, rows: DataFrame) -> list[File]:
        return self.stage(rows, partial(keep_readings, self.folders)).readings


def _reading_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for each in batches:
        yield from reading_rows(conformed(pa.Table.from_batches([each]), STORED)).to_batches()
