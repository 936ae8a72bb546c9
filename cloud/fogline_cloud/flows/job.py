"""The running flow: checks its requirements, and runs its queries until it is stopped."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fogline.errors import Misconfigured, Unreachable
from fogline.process.service_manager import tell_progress
from fogline.tracing.spans import ExportSpans
from fogline_cloud.flows.cluster.executor_check import check_executors
from fogline_cloud.flows.driver.commit import Progress, warm_up
from fogline_cloud.flows.driver.metrics import Offsets
from fogline_cloud.flows.driver.parsed_sink import FIRST_EVENTS, ParsedSink
from fogline_cloud.flows.driver.plan import plan_of
from fogline_cloud.flows.driver.query import Query, QuerySink
from fogline_cloud.flows.driver.raw_sink import RawProgress, RawSink
from fogline_cloud.flows.driver.session import RAW_POOL, is_local, log_file, parsing_slots
from fogline_cloud.flows.driver.spark_kafka_options import spark_options
from fogline_cloud.flows.replay.redrives import REDRIVES, RedriveQueue
from fogline_cloud.flows.replay.slow_lane import SLOW_LANE, SlowLane
from fogline_cloud.flows.start.positions import require_topics
from fogline_cloud.kafka import topics
from fogline_cloud.settings import CloudSettings, FlowSettings
from fogline_cloud.store.probe import check_store

log = logging.getLogger(__name__)

_BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
CATCH_UP_S = 30.0
"""Time for which a started flow that parses a backlog has the machine without the query that writes `raw`."""
_SETTLE_S = 5.0  # for which the query that parses has it after the backlog too, because its JVM is still cold


def preflight(settings: CloudSettings) -> None:
    """Check parsers, folders, the object store and Kafka before Spark starts. Raises `Misconfigured`."""
    topics.of_lanes(settings.flow.lanes, settings.tenant)
    if "%" in settings.flow.tables:
        raise Misconfigured(f"[flow] tables = {settings.flow.tables}: a folder with % in its name cannot be used")
    for key, folder in (("tables", settings.flow.tables), ("checkpoint", settings.flow.checkpoint)):
        if "://" not in folder:
            _require_writable(Path(folder), f"[flow] {key}")
    check_store(settings)
    plan_of(settings)
    spark_options(settings.kafka)
    require_topics(settings)


def _require_writable(folder: Path, key: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misconfigured(f"{key} = {folder}: the folder cannot be created: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Misconfigured(f"{key} = {folder}: the folder is not writable")


P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class QueryCallbacks(Generic[P]):
    """Reports of one query. `on_progress`: after each micro-batch, on another thread. `on_offsets`: soon after it.

    `on_failure`: before each wait for Kafka. `export`: takes the spans of committed rows; only of the query that parses.
    """

    on_progress: Callable[[P], None] = lambda _: None
    on_offsets: Callable[[Offsets], None] = lambda _: None
    on_failure: Callable[[str], None] = lambda _: None
    export: ExportSpans | None = None


def run_flow(
    spark: SparkSession,
    settings: CloudSettings,
    *,
    on_ready: Callable[[], None],
    parsing: QueryCallbacks[Progress],
    stop: threading.Event,
    raw: QueryCallbacks[RawProgress] = QueryCallbacks(),
    once: bool = False,
    accept_new_topics: bool = False,
) -> None:
    """Run the flow's queries until `stop` is set, or with `once` to the end of the records that Kafka has now.

    The query that parses starts first. When its first micro-batch has landed, or there is none, `on_ready` is called once, and
    threads begin beside it: the query that writes `raw` (if `[flow] raw_days` is not 0; after the backlog, or `CATCH_UP_S`),
    and, not with `once`, the slow lane (if `[flow] slow_limit_ms` is not 0) and orders to parse events again. A query waits
    for Kafka by itself. If one fails for another reason, `stop` is set, and the error is raised when the other has ended.

    `accept_new_topics`: read raw topics that were created again, if the checkpoint is new.
    Raises `Misconfigured`; Spark's own messages are in `log_file(settings)`.
    """
    if not is_local(spark.sparkContext.master):
        check_executors(spark, settings, stop)
    loop = _QueryLoop(spark, settings, stop, once=once, accept_new_topics=accept_new_topics)
    with ThreadPoolExecutor(4, thread_name_prefix="flow") as pool, _stopping_after_failure(stop):
        beside = _Beside(loop, raw, pool)

        @_once
        def ready() -> None:
            beside.start()
            on_ready()

        def on_progress(progress: Progress) -> None:
            ready()
            beside.on_progress(progress)
            parsing.on_progress(progress)

        pool.submit(_warm_up, spark, settings.flow)
        try:
            sink = partial(ParsedSink, export=parsing.export)
            loop.run(sink, replace(parsing, on_progress=on_progress), ready)
        finally:
            beside.end()
    beside.check()


def _once(action: Callable[[], None]) -> Callable[[], None]:
    """Return a function whose first call does it. Others, on any thread, wait until it is done."""
    lock = threading.Lock()
    done = False

    def call() -> None:
        nonlocal done
        with lock:
            if not done:
                done = True
                action()

    return call


def _warm_up(spark: SparkSession, flow: FlowSettings) -> None:
    with suppress(PySparkException, Py4JError):  # the first micro-batch fails for the same reason
        warm_up(spark, parsing_slots(spark.sparkContext.defaultParallelism, flow))


@contextmanager
def _stopping_after_failure(stop: threading.Event) -> Iterator[None]:
    try:
        yield
    except BaseException:  # an interrupt too: the other queries must end
        stop.set()
        raise


@dataclass(frozen=True)
class _QueryLoop:
    """Runs queries, one after the other: after a loss of Kafka, the next one goes on."""

    spark: SparkSession
    settings: CloudSettings
    stop: threading.Event
    once: bool
    accept_new_topics: bool

    def run(
        self,
        new_sink: Callable[[SparkSession, CloudSettings, Callable[[P], None]], QuerySink],
        callbacks: QueryCallbacks[P],
        on_read: Callable[[], None],
    ) -> None:
        """Run until `stop` is set, or with `once` to the end. `on_read` is called when a query begins to read."""
        failures = 0
        epoch: int | None = None

        def progressed(progress: P) -> None:
            nonlocal failures
            failures = 0
            callbacks.on_progress(progress)

        sink = new_sink(self.spark, self.settings, progressed)  # one for all queries: it knows the commits of former ones
        while not self.stop.is_set():
            query = Query(
                self.spark,
                self.settings,
                sink,
                callbacks.on_offsets,
                epoch=epoch,
                accept_new_topics=self.accept_new_topics,
            )
            try:
                query.run(self.stop, on_read, once=self.once)
            except Unreachable as error:
                delay_s = _BACK_OFF_S[min(failures, len(_BACK_OFF_S) - 1)]
                failures += 1
                log.warning("%s. Retrying in %.0f s (see %s).", error, delay_s, log_file(self.settings))
                callbacks.on_failure(str(error))
                tell_progress()
                self.stop.wait(delay_s)
                epoch = query.epoch
            else:
                return


class _Beside:
    """The query that writes `raw`, the slow lane and redrives: what runs beside the query that parses."""

    def __init__(self, loop: _QueryLoop, raw: QueryCallbacks[RawProgress], pool: ThreadPoolExecutor) -> None:
        self._loop = loop
        self._raw = raw
        self._pool = pool
        self._futures: list[Future[None]] = []
        self._caught_up = threading.Event()
        if loop.once:
            self._caught_up.set()

    def start(self) -> None:
        """Start what the settings ask for."""
        flow = self._loop.settings.flow
        if flow.raw_days:
            self._futures.append(self._pool.submit(self._write_raw))
        if flow.slow_limit_ms and not self._loop.once:
            self._futures.append(self._pool.submit(self._serve_slow_lane))
        if not self._loop.once:
            self._futures.append(self._pool.submit(self._redrive))

    def on_progress(self, progress: Progress) -> None:
        """Note whether the query that parses has caught up."""
        if progress.events < FIRST_EVENTS:
            self._caught_up.set()

    def end(self) -> None:
        """Let them end, after `stop` was set or the query that parses has ended."""
        self._caught_up.set()
        for group in (SLOW_LANE, REDRIVES):
            self._loop.spark.sparkContext.cancelJobGroup(group)

    def check(self) -> None:
        """Raise the error of the one that failed."""
        for each in self._futures:
            each.result()

    def _write_raw(self) -> None:
        loop = self._loop
        self._caught_up.wait(CATCH_UP_S)
        if not loop.once:
            loop.stop.wait(_SETTLE_S)
        loop.spark.sparkContext.setLocalProperty("spark.scheduler.pool", RAW_POOL)
        with _stopping_after_failure(loop.stop):
            loop.run(RawSink, self._raw, lambda: None)

    def _serve_slow_lane(self) -> None:
        with _stopping_after_failure(self._loop.stop):
            SlowLane(self._loop.spark, self._loop.settings).run(self._loop.stop)

    def _redrive(self) -> None:
        with _stopping_after_failure(self._loop.stop):
            RedriveQueue(self._loop.spark, self._loop.settings).run(self._loop.stop)
