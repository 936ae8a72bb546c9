"""A streaming query: from the takeover of its sink's tables to the end of the last micro-batch."""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline.process.service_manager import tell_progress
from fogline_cloud.flows.driver.checkpoint import delete_checkpoint, open_checkpoint, plan_again
from fogline_cloud.flows.driver.metrics import Offsets
from fogline_cloud.flows.driver.session import log_file
from fogline_cloud.flows.driver.source import raw_stream, starting_offsets
from fogline_cloud.flows.driver.spark_failure import explained
from fogline_cloud.flows.start.checkpoint_files import CheckpointFiles, CheckpointUnreadable
from fogline_cloud.flows.start.positions import Bounds, Positions, of_checkpoint
from fogline_cloud.flows.start.retention_gap import require_no_gap
from fogline_cloud.flows.start.takeover import Takeover
from fogline_cloud.flows.start.topic_ids import TopicIds, read_topic_ids
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

log = logging.getLogger(__name__)

QUICK_S = 10.0
"""Time within which a full micro-batch must land before the next ones are larger, so that rows of a backlog show often."""
FULL = 1 / 3
"""Least share of records in a full micro-batch: Spark counts Kafka's offsets, of which each transaction takes one more."""
FINISH_LIMIT_S = 10.0
"""Time that a running micro-batch may take after a stop was requested. It is abandoned then, and replayed by the next query."""
BATCH_LIMIT_S = 1800.0
"""A micro-batch that runs for longer is no progress: the service manager may start the flow again."""
READY_LIMIT_S = 10.0
"""A query whose first micro-batch runs for longer is ready all the same: a slow parser must not look like a failed start."""
_POLL_S = 0.25  # Spark offers no way to wait for the end of a query and for something else at once


class QuerySink(Protocol):
    """The tables that a query writes, and its way to write them. `name`: name of the query. `checkpoint`: its folder.

    A query calls `open`, then `begin`, then `finish`, or `resume` if its checkpoint is new but the tables are not, then `land`.
    Further queries of the process may follow with the same sink.
    """

    name: str
    checkpoint: str

    def batch_sizes(self) -> list[int]:
        """Return the largest number of records in a micro-batch: of the first one, then after each full one that was quick."""

    def source_options(self) -> Mapping[str, int | str]:
        """Return further options of Spark's Kafka source, for a query that runs until it is stopped."""

    def open(self) -> bool:
        """Open the tables, and create missing ones. Returns True if they existed. Raises `Misconfigured`."""

    @property
    def logs(self) -> Sequence[DeltaLog]:
        """The logs of the tables. A commit to the first one decides a micro-batch."""

    def begin(self, owner: Owner, topic_ids: TopicIds) -> None:
        """Take micro-batches of this owner from now on."""

    def finish(self, batch: MicroBatch) -> None:
        """Write what other tables lack of the newest batch in the first one. Its checkpoint may say that it is finished."""

    def resume(self, bounds: Bounds) -> Positions:
        """Finish the last batches of former checkpoints. Returns the positions after the last rows."""

    def land(self, raw: DataFrame, batch: MicroBatch, *, decided: bool) -> int:
        """Land one micro-batch. `decided`: its rows are in the first table already. Returns the number of its records."""


class Query:
    """Reads the tenant's raw topics into the tables of a sink.

    `epoch`: the epoch under which this process owns the tables, `None` until it does; a further query of the process gets
    it, so that it does not take the tables back from a newer flow. Spark calls `_on_batch` on a thread of its own.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: CloudSettings,
        sink: QuerySink,
        on_offsets: Callable[[Offsets], None],
        *,
        epoch: int | None,
        accept_new_topics: bool,
    ) -> None:
        self.epoch = epoch
        self._accept_new_topics = accept_new_topics
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._on_offsets = on_offsets
        self._reported = -1
        self._topic_ids: TopicIds | None = None
        self._planned = self._decided = -1
        self._most = 0
        self._may_grow = False
        self._stopping = False
        self._began = 0.0
        self._idle = threading.Event()
        self._idle.set()
        self._failure: FoglineError | None = None

    def run(self, stop: threading.Event, on_ready: Callable[[], None], *, once: bool) -> None:
        """Read until `stop` is set, or with `once` to the end of Kafka's records. Raises `Misconfigured` or `Unreachable`.

        `on_ready` is called, more than once, when the query reads and no first micro-batch is still to land.
        """
        try:
            starting = self._prepare()
            # Spark fixes the size of micro-batches when a query starts, so a further query follows the first one.
            sizes = self._sink.batch_sizes()[-1:] if once else self._sink.batch_sizes()
            for max_events in sizes:
                self._most, self._may_grow = max_events, False
                query = self._stream(starting, max_events, once=once)
                while not query.awaitTermination(_POLL_S):
                    if self._is_ready(query):
                        on_ready()
                    self._report_offsets(query)
                    if monotonic() - self._began < BATCH_LIMIT_S or self._idle.is_set():
                        tell_progress()
                    if stop.is_set() or (self._may_grow and max_events != sizes[-1]):
                        self._end(query)
                        break
                self._report_offsets(query)
                if stop.is_set():
                    return
                on_ready()
        except (PySparkException, Py4JError, DeltaError, OSError) as error:
            if stop.is_set():  # what did not land is read again at the next start
                log.info("the last micro-batch did not end: %s", str(error).partition("\n")[0])
                return
            failure = self._failure or explained(error, log_file(self._settings))
            if isinstance(failure, Misconfigured) and self._topic_ids is not None:
                with suppress(Unreachable):
                    self._topic_ids.check()  # Spark reports a topic that was created again as lost data
            raise failure from error

    def _is_ready(self, query: StreamingQuery) -> bool:
        """Return False until Spark knows Kafka's offsets, which takes seconds, and has landed what it found first."""
        if self._idle.is_set():
            return self._began > 0 or query.lastProgress is not None
        return monotonic() - self._began > READY_LIMIT_S if self._began else False

    def _report_offsets(self, query: StreamingQuery) -> None:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != self._reported:
            self._reported = progress["batchId"]
            self._on_offsets(json.loads(progress["sources"][0]["endOffset"]))

    def _prepare(self) -> str:
        """Takeover the tables. Returns Spark's starting offsets. Raises `Misconfigured` if Kafka has deleted unread records."""
        sink = self._sink
        exists = sink.open()
        for each in sink.logs:
            each.read_back()
        self._topic_ids = topic_ids = read_topic_ids(self._settings)
        takeover = self._takeover(topic_ids)
        if takeover.is_replaced:
            delete_checkpoint(self._spark, sink.checkpoint)
            takeover = self._takeover(topic_ids)
        if takeover.is_overwritten:
            done = takeover.checkpoint.done
            log.error(
                "%s: another program has overwritten the commit of batch %d (docs/store.md). Its records are read again.",
                *(sink.logs[0].folder.path, done),
            )
            plan_again(self._spark, sink.checkpoint, done)
            takeover = self._takeover(topic_ids)
        self._owner = takeover.make(exists=exists, epoch=self.epoch)
        self.epoch = self._owner.epoch
        self._planned, self._decided = takeover.checkpoint.planned, takeover.decided
        sink.begin(self._owner, topic_ids)
        if 0 <= takeover.decided <= takeover.checkpoint.done:  # else Spark gives the batch again
            sink.finish(MicroBatch(self._settings.flow.name, self._owner.run, takeover.decided))
        known = self._known(takeover, topic_ids) if exists else {}
        return starting_offsets(topic_ids.partitions, known)

    def _takeover(self, topic_ids: TopicIds) -> Takeover:
        sink, settings = self._sink, self._settings
        checkpoint = open_checkpoint(self._spark, sink.checkpoint)
        accept = self._accept_new_topics
        return Takeover(
            settings.tenant, settings.flow, sink.checkpoint, sink.logs, checkpoint, topic_ids.ids, accept_new_topics=accept
        )

    def _known(self, takeover: Takeover, topic_ids: TopicIds) -> Positions:
        """Return the positions that Spark's checkpoint does not have. Raises `Misconfigured` after a gap by retention."""
        settings = self._settings
        bounds = topic_ids.clients.bounds(topic_ids.partitions, committed=True)
        if takeover.checkpoint.planned < 0:
            known = self._sink.resume(bounds)
            require_no_gap(known, bounds)
            return known
        with suppress(CheckpointUnreadable):  # delta-rs knows fewer kinds of folders than Spark, which finds the gap later
            files = CheckpointFiles(self._sink.checkpoint, storage_of(settings))
            require_no_gap(of_checkpoint(files, takeover.checkpoint, takeover.decided, bounds), bounds)
        return {}

    def _stream(self, starting: str, max_events: int, *, once: bool) -> StreamingQuery:
        flow = self._settings.flow
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": f"{flow.trigger_ms} milliseconds"}
        options = {} if once else self._sink.source_options()
        self._stopping, self._failure = False, None
        return (
            raw_stream(self._spark, self._settings, starting, max_events, **options)
            .writeStream.queryName(f"fogline-{self._sink.name}")
            .option("checkpointLocation", self._sink.checkpoint)
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
        batch = MicroBatch(self._settings.flow.name, self._owner.run, number)
        began = self._began = monotonic()
        records = self._sink.land(raw, batch, decided=number <= self._decided)
        self._decided = number
        quick = number > self._planned and monotonic() - began < QUICK_S
        self._may_grow = quick and records >= self._most * FULL

    def _end(self, query: StreamingQuery) -> None:
        """Stop Spark's query after the running micro-batch, or abandon that batch: its replay changes nothing."""
        self._stopping = True
        self._idle.wait(FINISH_LIMIT_S)
        query.stop()
