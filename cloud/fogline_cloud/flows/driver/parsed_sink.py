"""The sink of the parsing query: tables `events` and `readings`, and the derived topics."""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from fogline.tracing.spans import ExportSpans
from fogline_cloud.flows.deployed.parser_log import ParserLog
from fogline_cloud.flows.driver.commit import MicroBatchCommitter, Progress
from fogline_cloud.flows.driver.deployments import Deployments
from fogline_cloud.flows.driver.key_cache import key_files_of
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.driver.session import parsing_slots
from fogline_cloud.flows.driver.table_creation import make_tables
from fogline_cloud.flows.start.positions import Bounds, Positions, of_events
from fogline_cloud.flows.start.topic_ids import TopicIds
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.flows.tables.id_keys import IdIndex
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.worker.tasks import WorkerTask
from fogline_cloud.kafka.connection_settings import with_content
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

FIRST_EVENTS = 2000
"""Largest number of records in the first micro-batch of a started flow."""
_GROWTH = 5


class ParsedSink:
    """Parses the records of a micro-batch, and writes what follows from them. `on_progress` is called after each batch.

    `export`: takes the spans of committed rows.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: CloudSettings,
        on_progress: Callable[[Progress], None],
        *,
        export: ExportSpans | None = None,
    ) -> None:
        self.name = settings.flow.name
        self.checkpoint = settings.flow.checkpoint
        self._spark = spark
        self._settings = settings
        self._on_progress = on_progress
        self._export = export
        self._logs: tuple[DeltaLog, DeltaLog] | tuple[()] = ()
        self._tables = tables_in(settings.flow.tables, storage_of(settings))
        self._key_files = key_files_of(settings.flow, self._tables.events)

    def batch_sizes(self) -> list[int]:
        """Return the largest number of records in a micro-batch, growing."""
        # A started flow finds a backlog, and its JVM and workers are cold: the backlog as one micro-batch would show no row
        # for a long time.
        most = self._settings.flow.max_events_per_batch
        sizes = [FIRST_EVENTS]
        while sizes[-1] < most:
            sizes.append(sizes[-1] * _GROWTH)
        return [*sizes[:-1], most]

    def source_options(self) -> Mapping[str, int | str]:
        """Return no further options."""
        return {}

    def open(self) -> bool:
        """Open the tables, and create missing ones. Returns True if `events` existed. Raises `Misconfigured`."""
        exists = make_tables(self._spark, self._tables)
        events, readings = self._logs or (None, None)  # of a former query
        self._logs = DeltaLog("events", self._tables.events, events), DeltaLog("readings", self._tables.readings, readings)
        return exists

    @property
    def logs(self) -> Sequence[DeltaLog]:
        """The logs of the tables, that of `events` first."""
        return self._logs

    def begin(self, owner: Owner, topic_ids: TopicIds) -> None:
        """Take micro-batches of this owner from now on."""
        flow, plan = self._settings.flow, plan_of(self._settings)
        events, readings = self.logs
        self._committer = MicroBatchCommitter(
            spark=self._spark,
            events=events,
            readings=readings,
            task=WorkerTask(
                plan=plan,
                events=self._tables.events,
                readings=self._tables.readings,
                kafka=with_content(self._settings.kafka),
                shared=flow.shared,
                canonical=flow.canonical,
                tracing=self._export is not None,
            ),
            owner=owner,
            topic_ids=topic_ids,
            ids=IdIndex(self._tables.events, self._key_files),
            slots=lambda: parsing_slots(self._spark.sparkContext.defaultParallelism, flow),
            export=self._export,
            deployments=Deployments(ParserLog(self._settings), f"flow {owner.name}", plan.deployed.set),
        )

    def resume(self, bounds: Bounds) -> Positions:
        """Finish the last batches of former checkpoints. Returns the positions after the last rows of `events`."""
        landed = of_events(self._committer.owner, self.logs[0], self._committer.topic_ids.ids, bounds)
        for batch in landed.unfinished:
            self._committer.finish(batch)
        return landed.positions

    def finish(self, batch: MicroBatch) -> None:
        """Write what `readings` lacks of the newest batch in `events`. Its checkpoint may say that it is finished."""
        if self.logs[1].newest(batch) < batch.number:
            self._committer.finish(batch)

    def land(self, raw: DataFrame, batch: MicroBatch, *, decided: bool) -> int:
        """Land one micro-batch. `decided`: its rows are in `events` already. Returns the number of its events."""
        progress = self._committer.process(raw, batch, decided=decided)
        self._on_progress(progress)
        return progress.events
