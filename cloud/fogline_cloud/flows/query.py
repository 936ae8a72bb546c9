"""One streaming query from start to end."""

import threading
from collections.abc import Callable
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from fogline.errors import FoglineError, Misconfigured, Unreachable
from fogline_cloud.flows.batch import Batch
from fogline_cloud.flows.checkpoint import Checkpoint, open_checkpoint
from fogline_cloud.flows.claim import Claim
from fogline_cloud.flows.commit import Landing, Progress
from fogline_cloud.flows.compaction import Compaction
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.failure import explained
from fogline_cloud.flows.key_file import load_keys
from fogline_cloud.flows.owner import Owner
from fogline_cloud.flows.parse import Plan
from fogline_cloud.flows.parsers import checked_overrides
from fogline_cloud.flows.session import is_local, log_file
from fogline_cloud.flows.source import raw_stream, starting_offsets
from fogline_cloud.flows.tables import compact_all, make_tables, require_shared, standing, tables_in
from fogline_cloud.flows.topic_ids import TopicIds, read_topic_ids
from fogline_cloud.settings import Settings

FINISH_LIMIT_S = 30.0
"""How long a batch may go on after a stop was asked for, before it is abandoned (it is then replayed)."""
_LOOK_S = 0.25
"""How often a running query is left to see whether a stop was asked for: Spark has no other way to wait for two things."""


class Query:
    """Reads the tenant's raw topics into the flow's tables. `counts`: partitions of every topic.

    `epoch`: under which this process owns the tables, once it does. A further query of the same process is given it, so
    that a flow that waited for Kafka does not take the tables back from a newer one.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        counts: dict[str, int],
        on_progress: Callable[[Progress], None],
        epoch: int | None = None,
        *,
        accept_new_topics: bool = False,
    ) -> None:
        flow = settings.flow
        self.epoch = epoch
        self._accept_new_topics = accept_new_topics
        self._spark = spark
        self._settings = settings
        self._counts = counts
        self._on_progress = on_progress
        self._tables = tables_in(flow.tables, flow.storage)
        self._topic_ids: TopicIds | None = None
        self._decided = -1
        self._started = threading.Event()
        self._stopping = False
        self._idle = threading.Event()
        self._idle.set()
        self._failure: FoglineError | None = None

    def run(self, stop: threading.Event, on_ready: Callable[[], None], *, once: bool) -> None:
        """Start, wait for the end or for `stop`, end in order.

        Raises `Misconfigured` or `Unreachable` for what ended it otherwise.
        """
        try:
            query = self._start(once=once)
            on_ready()
            while not query.awaitTermination(_LOOK_S):
                if stop.is_set():
                    self._end(query)
                    return
        except (PySparkException, Py4JError) as error:
            failure = self._failure or explained(error, log_file(self._settings))
            if isinstance(failure, Misconfigured) and self._topic_ids is not None:
                with suppress(Unreachable):
                    self._topic_ids.check()  # a topic that was made again looks to Spark like lost data
            raise failure from error

    def _start(self, *, once: bool) -> StreamingQuery:
        flow = self._settings.flow
        there = make_tables(self._spark, self._tables)
        if not is_local(flow.master):
            require_shared(self._spark, self._tables.events, flow.master)
        checkpoint = open_checkpoint(self._spark, flow.checkpoint)
        events, readings = DeltaLog("events", self._tables.events), DeltaLog("readings", self._tables.readings)
        self._topic_ids = topic_ids = read_topic_ids(self._settings)
        accept = self._accept_new_topics
        claim = Claim(self._settings.tenant, flow, events, readings, checkpoint, topic_ids.ids, accept_new_topics=accept)
        owner = claim.make(there=there, epoch=self.epoch)
        self.epoch = owner.epoch
        self._decided = claim.decided
        self._landing = self._make_landing(events, readings, owner, topic_ids)
        trigger = {"availableNow": True} if once else {"processingTime": f"{flow.trigger_ms} milliseconds"}
        query = (
            raw_stream(self._spark, self._settings, self._starting(checkpoint, there=there))
            .writeStream.queryName(f"fogline-{flow.name}")
            .option("checkpointLocation", flow.checkpoint)
            .foreachBatch(self._batch)
            .trigger(**trigger)
            .start()
        )
        self._started.set()
        return query

    def _make_landing(self, events: DeltaLog, readings: DeltaLog, owner: Owner, topic_ids: TopicIds) -> Landing:
        flow = self._settings.flow
        parsers = checked_overrides(flow.parsers)
        return Landing(
            spark=self._spark,
            tables=self._tables,
            events=events,
            readings=readings,
            plan=Plan(
                tenant=self._settings.tenant,
                limit_s=flow.parse_limit_ms / 1000,
                parsers=parsers,
                keys=load_keys(flow.ble_keys),
            ),
            owner=owner,
            topic_ids=topic_ids,
            kafka=self._settings.kafka,
            parallel=self._spark.sparkContext.defaultParallelism,
            shared=flow.shared,
            compaction=Compaction(lambda days: compact_all(self._spark, self._tables, days)),
        )

    def _starting(self, checkpoint: Checkpoint, *, there: bool) -> str:
        """Spark's starting offsets. For a new checkpoint, finish what the former left, and go on after it.

        `there`: the tables are not new.
        """
        tenant = self._settings.tenant
        if checkpoint.planned >= 0 or not there:
            return starting_offsets(tenant, self._counts, {})
        owner = self._landing.owner
        stand = standing(self._spark, self._tables, owner, self._landing.events)
        for batch in stand.last:
            self._landing.finish(batch)
        return starting_offsets(tenant, self._counts, stand.offsets)

    def _batch(self, raw: DataFrame, number: int) -> None:
        """Spark calls this, in a thread of its own. To return means: the batch is done for ever."""
        self._idle.clear()
        try:
            self._land(raw, number)
        except Exception as error:  # whatever it is, it ends the query, and Spark would tell it as a page of Java
            self._failure = explained(error, log_file(self._settings))
            raise
        finally:
            self._idle.set()

    def _land(self, raw: DataFrame, number: int) -> None:
        if self._stopping:
            raise Unreachable("the flow was told to stop before this batch began")
        self._started.wait()
        batch = Batch(self._settings.flow.name, self._landing.owner.run, number)
        self._landing.land(raw, batch, decided=number <= self._decided, on_progress=self._on_progress)
        self._decided = number

    def _end(self, query: StreamingQuery) -> None:
        """Let the batch under way finish, or abandon it: its replay changes nothing."""
        self._stopping = True
        self._idle.wait(FINISH_LIMIT_S)
        query.stop()
