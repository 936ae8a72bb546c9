"""The streaming query: from the claim on the tables to the end of the last micro-batch."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline_cloud.flows.batch import MicroBatch
from fogline_cloud.flows.checkpoint import QueryCheckpoint, open_checkpoint
from fogline_cloud.flows.claim import Claim
from fogline_cloud.flows.commit import MicroBatchCommitter, Progress
from fogline_cloud.flows.compaction import Compaction
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.failure import explained
from fogline_cloud.flows.key_file import load_keys
from fogline_cloud.flows.metrics import Offsets
from fogline_cloud.flows.parse import Plan
from fogline_cloud.flows.parser_choice import checked_rules
from fogline_cloud.flows.parsers import checked_overrides, installed
from fogline_cloud.flows.session import is_local, log_file
from fogline_cloud.flows.source import raw_stream, starting_offsets
from fogline_cloud.flows.tables import compact, make_tables, read_progress, require_shared, tables_in
from fogline_cloud.flows.tasks import WorkerTask
from fogline_cloud.flows.topic_ids import TopicIds, read_topic_ids
from fogline_cloud.settings import CloudSettings

FIRST_EVENTS = 2000
"""Largest number of records in a micro-batch until a started flow has landed its first one."""
FINISH_LIMIT_S = 30.0
"""Time that a running micro-batch may take after a stop was requested. It is abandoned then, and replayed by the next query."""
_POLL_S = 0.25  # Spark offers no way to wait for the end of a query and for something else at once


class Query:
    """Reads the tenant's raw topics into the flow's tables. `counts`: partition count of each topic.

    `epoch`: the epoch under which this process owns the tables, `None` until it does; a further query of the process gets
    it, so that it does not take the tables back from a newer flow. Spark calls `_on_batch` on a thread of its own.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: CloudSettings,
        counts: dict[str, int],
        on_progress: Callable[[Progress], None],
        on_offsets: Callable[[Offsets], None],
        *,
        epoch: int | None,
        accept_new_topics: bool,
    ) -> None:
        self.epoch = epoch
        self._accept_new_topics = accept_new_topics
        self._spark = spark
        self._settings = settings
        self._counts = counts
        self._on_progress = on_progress
        self._on_offsets = on_offsets
        self._reported = -1
        self._tables = tables_in(settings.flow.tables, settings.flow.storage)
        self._topic_ids: TopicIds | None = None
        self._planned = self._decided = -1
        self._has_landed = False
        self._stopping = False
        self._idle = threading.Event()
        self._idle.set()
        self._failure: FoglineError | None = None

    def run(self, stop: threading.Event, on_ready: Callable[[], None], *, once: bool) -> None:
        """Read until `stop` is set, or with `once` to the end of Kafka's records. Raises `Misconfigured` or `Unreachable`."""
        try:
            starting = self._prepare()
            for max_events in self._batch_sizes(once=once):
                query = self._stream(starting, max_events, once=once)
                on_ready()
                while not query.awaitTermination(_POLL_S):
                    self._report_offsets(query)
                    if stop.is_set() or (self._has_landed and max_events < self._settings.flow.max_events_per_batch):
                        self._end(query)
                        break
                self._report_offsets(query)
                if stop.is_set():
                    return
        except (PySparkException, Py4JError) as error:
            failure = self._failure or explained(error, log_file(self._settings))
            if isinstance(failure, Misconfigured) and self._topic_ids is not None:
                with suppress(Unreachable):
                    self._topic_ids.check()  # Spark reports a topic that was created again as lost data
            raise failure from error

    def _report_offsets(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != self._reported:
            self._reported = progress["batchId"]
            self._on_offsets(json.loads(progress["sources"][0]["endOffset"]))

    def _batch_sizes(self, *, once: bool) -> list[int]:
        """Return the largest number of records in a micro-batch, for each Spark query that this one consists of."""
        # A started flow finds a backlog, and its JVM and workers are cold: the backlog as one micro-batch would show no row
        # for a long time. Spark fixes the size when a query starts, so a second query follows the first one.
        most = self._settings.flow.max_events_per_batch
        return [most] if once or most <= FIRST_EVENTS else [FIRST_EVENTS, most]

    def _prepare(self) -> str:
        flow = self._settings.flow
        exists = make_tables(self._spark, self._tables)
        if not is_local(flow.master):
            require_shared(self._spark, self._tables.events, flow.master)
        checkpoint = open_checkpoint(self._spark, flow.checkpoint)
        events, readings = DeltaLog("events", self._tables.events), DeltaLog("readings", self._tables.readings)
        self._topic_ids = topic_ids = read_topic_ids(self._settings)
        accept = self._accept_new_topics
        claim = Claim(self._settings.tenant, flow, events, readings, checkpoint, topic_ids.ids, accept_new_topics=accept)
        owner = claim.make(exists=exists, epoch=self.epoch)
        self.epoch = owner.epoch
        self._planned, self._decided = checkpoint.planned, claim.decided
        self._committer = MicroBatchCommitter(
            spark=self._spark,
            events=events,
            readings=readings,
            task=WorkerTask(
                plan=Plan(
                    tenant=self._settings.tenant,
                    limit_s=flow.parse_limit_ms / 1000,
                    parsers=checked_overrides(flow.parsers),
                    rules=checked_rules(flow.parser_rules, installed()),
                    keys=load_keys(flow.ble_keys),
                    memory_bytes=flow.parse_memory_mib << 20,
                ),
                events=self._tables.events,
                readings=self._tables.readings,
                kafka=self._settings.kafka,
                shared=flow.shared,
            ),
            owner=owner,
            topic_ids=topic_ids,
            parallel=self._spark.sparkContext.defaultParallelism,
            compaction=Compaction(partial(compact, self._spark, self._tables)),
        )
        return self._starting_offsets(checkpoint, exists=exists)

    def _starting_offsets(self, checkpoint: QueryCheckpoint, *, exists: bool) -> str:
        """Return Spark's starting offsets. If the checkpoint is new but the tables are not, first finish their last batches."""
        tenant = self._settings.tenant
        if checkpoint.planned >= 0 or not exists:
            return starting_offsets(tenant, self._counts, {})
        offsets, unfinished = read_progress(self._spark, self._committer.owner, self._committer.events)
        for batch in unfinished:
            self._committer.finish(batch)
        return starting_offsets(tenant, self._counts, offsets)

    def _stream(self, starting: str, max_events: int, *, once: bool) -> StreamingQuery:
        flow = self._settings.flow
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{flow.trigger_ms} milliseconds"}
        self._stopping, self._failure = False, None
        return (
            raw_stream(self._spark, self._settings, starting, max_events)
            .writeStream.queryName(f"fogline-{flow.name}")
            .option("checkpointLocation", flow.checkpoint)
            .foreachBatch(self._on_batch)
            .trigger(**trigger)
            .start()
        )

    def _on_batch(self, raw: DataFrame, number: int) -> None:
        """Land one micro-batch. Spark never repeats a batch after this has returned."""
        self._idle.clear()
        try:
            self._land(raw, number)
        except Exception as error:  # any failure ends the query, and Spark would report it as a page of Java
            self._failure = explained(error, log_file(self._settings))
            raise
        finally:
            self._idle.set()

    def _land(self, raw: DataFrame, number: int) -> None:
        if self._stopping:
            raise Unreachable("the flow was stopped before this batch began")
        batch = MicroBatch(self._settings.flow.name, self._committer.owner.run, number)
        self._committer.process(raw, batch, decided=number <= self._decided, on_progress=self._on_progress)
        self._decided = number
        self._has_landed |= number > self._planned

    def _end(self, query: StreamingQuery) -> None:
        """Stop Spark's query after the running micro-batch, or abandon that batch: its replay changes nothing."""
        self._stopping = True
        self._idle.wait(FINISH_LIMIT_S)
        query.stop()
