"""The sink of the query that writes table `raw`. It runs no parser, so no parser stops it."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic

import msgspec
from pyspark.sql import DataFrame, SparkSession

from fogline_cloud.flows.driver.commit import collected
from fogline_cloud.flows.driver.spark_failure import repeated
from fogline_cloud.flows.driver.table_creation import make_table
from fogline_cloud.flows.start.checkpoint_files import raw_checkpoint
from fogline_cloud.flows.start.positions import Bounds, Positions, of_raw
from fogline_cloud.flows.start.topic_ids import TopicIds
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import count_rows, tables_in
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import MEASURED
from fogline_cloud.flows.worker.raw_rows import RawTask, stage_raw
from fogline_cloud.flows.worker.tasks import REPLY
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

DELAY_S = 60
"""Largest time that records wait for a full micro-batch: nobody waits for them, and small files cost later."""


class RawProgress(msgspec.Struct, frozen=True):
    """One micro-batch that was added to table `raw`."""

    batch: int
    records: int
    seconds: float


class RawSink:
    """Appends the records of a micro-batch to table `raw`, with one commit. `on_progress` is called after each batch."""

    def __init__(self, spark: SparkSession, settings: CloudSettings, on_progress: Callable[[RawProgress], None]) -> None:
        self.name = f"{settings.flow.name}-raw"
        self.checkpoint = raw_checkpoint(settings.flow)
        self._spark = spark
        self._settings = settings
        self._on_progress = on_progress
        self._folder = tables_in(settings.flow.tables, storage_of(settings)).raw
        self._log: DeltaLog | None = None

    def batch_sizes(self) -> list[int]:
        """Return the one size that all micro-batches have."""
        return [self._settings.flow.max_events_per_batch]

    def source_options(self) -> Mapping[str, int | str]:
        """Let Spark wait for a full micro-batch."""
        return {"minOffsetsPerTrigger": self._settings.flow.max_events_per_batch, "maxTriggerDelay": f"{DELAY_S}s"}

    def open(self) -> bool:
        """Open the table, and create it if it is missing. Returns True if it existed. Raises `Misconfigured`."""
        exists = make_table(self._spark, self._folder, schema.RAW, MEASURED["raw"])
        self._log = DeltaLog("raw", self._folder, self._log)
        return exists

    @property
    def logs(self) -> Sequence[DeltaLog]:
        """The log of the table."""
        assert self._log is not None, "a query calls `open` first"
        return (self._log,)

    def begin(self, owner: Owner, topic_ids: TopicIds) -> None:
        """Take micro-batches of this owner from now on."""
        self._owner = owner
        self._topic_ids = topic_ids

    def finish(self, batch: MicroBatch) -> None:
        """Do nothing: a batch has one commit."""

    def resume(self, bounds: Bounds) -> Positions:
        """Return the positions after the last rows. No batch is unfinished, because it has one commit."""
        return of_raw(self._owner, self.logs[0], self._topic_ids.ids, bounds)

    def land(self, raw: DataFrame, batch: MicroBatch, *, decided: bool) -> int:
        """Append one micro-batch, unless it is `decided`: in the table already. Returns the number of records."""
        if decided:
            return 0
        begun = monotonic()
        task = RawTask(tenant=self._settings.tenant, folder=self._folder, topic_ids=dict(self._topic_ids.ids))
        parallel = max(1, self._spark.sparkContext.defaultParallelism // 2)

        def append() -> int:
            files = collected(raw.coalesce(parallel).mapInArrow(partial(stage_raw, task, batch), REPLY)).files
            # After reading: if a topic was created again meanwhile, these records may belong to another id.
            self._topic_ids.check()
            self.logs[0].append(files, batch, self._owner)
            return count_rows(files)

        records = repeated(append)
        self._on_progress(RawProgress(batch.number, records, monotonic() - begun))
        return records
