"""One micro-batch: one commit decides, everything else is derived from that commit.

| step | action | if the batch is replayed |
|---|---|---|
| 1 | workers parse the records, once, and write files of `events` and `readings` | repeated only if step 2 did not happen |
| 2 | the driver commits the files to `events` | the transaction id is known: nothing is committed |
| 3 | the driver commits the files to `readings` | if it did not happen, workers write them again, from the committed rows |
| 4 | workers, or the driver for few rows, read them, and send derived records to Kafka | repeated, with the same ids |

If a parser kills its worker in step 1, Spark repeats the task, then with every parser in a child process. If a VACUUM without
retention deletes files that a step needs, the micro-batch goes on with the first step that is not done.

A kill at any point leaves every event exactly once in both tables, and at least once in the derived topics (canonical, slow,
dead, fleet). `fogline table maintain` removes files that no commit names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from time import monotonic, time_ns
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.events.event import POSSIBLE_DUPLICATE
from fogline.events.identity import COMPARED_BY_ID, Dedup
from fogline.tracing.spans import ExportSpans
from fogline_cloud.flows.driver.probation import Probation
from fogline_cloud.flows.driver.retried_task import with_children
from fogline_cloud.flows.driver.spark_failure import repeated
from fogline_cloud.flows.parsers import installed
from fogline_cloud.flows.start.topic_ids import TopicIds
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import count_rows, delete_below, span_of
from fogline_cloud.flows.tables.id_keys import IdIndex, Keys, keys_in
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.flows.tables.table_log import file_sizes
from fogline_cloud.flows.worker import tasks
from fogline_cloud.flows.worker.cross_gateway_dedup import KafkaPosition
from fogline_cloud.flows.worker.parse import Plan
from fogline_cloud.flows.worker.parse_spans import parse_spans
from fogline_cloud.flows.worker.tasks import Derived, StagedFiles, Suspects
from fogline_cloud.settings import SharedSettings

if TYPE_CHECKING:  # its client of the store is not installed where executors run, which import this module
    from fogline_cloud.flows.driver.deployments import Deployments

_IDENTITY = ("source", "id")
FEW_EVENTS = 2000
"""Number of events up to which the driver compares and derives by itself: a job of Spark takes longer than the work in it."""
EARLY = timedelta(days=2)
"""Time by which Kafka may have got an event before a gateway's clock says that it was stored."""


class Progress(msgspec.Struct, frozen=True):
    """One finished micro-batch. `outcomes`: events by outcome. `returned`: deployed parsers from which the flow went back."""

    batch: int
    events: int
    readings: int
    outcomes: dict[str, int]
    seconds: float
    returned: list[str] = []


@dataclass(frozen=True, slots=True)
class MicroBatchCommitter:
    """Takes micro-batches through the four steps, one after the other.

    `slots`: returns the number of tasks that run at once, which changes as a cluster's executors come and go.
    `export`: takes the spans of committed rows, if `task.tracing` is set. `deployments`: chooses the deployed parsers of each
    micro-batch; without it, those of `task` count.
    """

    spark: SparkSession
    events: DeltaLog
    readings: DeltaLog
    task: tasks.WorkerTask
    owner: Owner
    topic_ids: TopicIds
    ids: IdIndex
    slots: Callable[[], int]
    probation: Probation = field(default_factory=Probation)
    export: ExportSpans | None = None
    deployments: "Deployments | None" = None

    def process(self, raw: DataFrame, batch: MicroBatch, *, decided: bool) -> Progress:
        """Take one micro-batch through every step that is left. `decided`: its rows are in `events` already."""
        begun = monotonic()
        derived = repeated(partial(self._land, raw, batch, decided=decided))
        outcomes = dict(sorted(derived.outcomes.items()))
        events, seconds = sum(derived.outcomes.values()), monotonic() - begun
        returned = [] if self.deployments is None else self.deployments.take_returned()
        return Progress(batch.number, events, derived.readings, outcomes, seconds, returned)

    def _land(self, raw: DataFrame, batch: MicroBatch, *, decided: bool) -> Derived:
        for log in (self.events, self.readings):  # a table that lacks an overwritten commit answers wrongly
            log.read_back()
        if decided or self.events.newest(batch) >= batch.number:  # a former try may have done step 2
            return self.finish(batch)
        return self._parse_and_commit(raw, batch)

    def finish(self, batch: MicroBatch) -> Derived:
        """Do steps 3 and 4 of a batch whose rows are in `events`. Idempotent."""
        write = self.readings.newest(batch) < batch.number
        work = partial(tasks.derive, self.task, batch, write=write)
        derived = derive(self.spark, work, self.events.holding(batch), self.slots())
        self.readings.append(derived.files, batch, self.owner)
        return derived

    def _parse_and_commit(self, raw: DataFrame, batch: MicroBatch) -> Derived:
        begun_ns = time_ns()
        stage = partial(_stage, msgspec.structs.replace(self.task, plan=self._plan()), batch)
        staged = collected(raw.coalesce(self.slots()).mapInArrow(stage, tasks.REPLY))
        self.probation.landed({*staged.killers})
        if self.deployments is not None:
            self.deployments.landed(staged.trials)
        if staged.replayed or staged.shared:
            staged = joined([staged, *self._deduplicated(staged, batch)])
        # After reading: if a topic was created again meanwhile, the offsets of these records belong to another topic.
        self.topic_ids.check()
        if not self.events.append(staged.files, batch, self.owner):
            return self.finish(batch)
        committed_ns = time_ns()
        self.readings.append(staged.readings, batch, self.owner)
        work, paths = partial(tasks.derive, self.task, batch, write=False), [each.path for each in staged.files]
        derived = derive(self.spark, work, paths, self.slots(), alone=count_rows(staged.files) <= FEW_EVENTS)
        if self.export is not None:
            self.export(parse_spans(derived.traced, batch.flow, (begun_ns, committed_ns)))
        return derived

    def _plan(self) -> Plan:
        """Return the plan of a micro-batch: all of its tasks have the same parsers, also those that Spark repeats."""
        plan = msgspec.structs.replace(self.task.plan, in_child=self.probation.parsers)
        if self.deployments is None:
            return plan
        deployed = msgspec.structs.replace(plan.deployed, set=self.deployments.current())
        return msgspec.structs.replace(plan, deployed=deployed)

    def _deduplicated(self, staged: StagedFiles, batch: MicroBatch) -> list[StagedFiles]:
        """Compare rows that may be duplicates with the table and with the rest of the batch. Returns files to commit."""
        found: list[StagedFiles] = []
        known = file_sizes(self.events.snapshot())
        self.ids.forget_all_but(known)
        if staged.replayed:
            contested = self._read([each.path for each in staged.replayed])
            paths = [*self.ids.holding(known, self._keys(staged.replayed)), *(each.path for each in staged.files)]
            settled = self._read(paths) if paths else self._read([staged.replayed[0].path]).limit(0)
            marked = mark_replayed(contested, settled.select("outcome", *_IDENTITY))
            stage = partial(tasks.stage_rows, self.task)
            found.append(collected(marked.coalesce(self.slots()).mapInArrow(stage, tasks.REPLY)))
        if staged.shared:
            found.append(self._with_verdicts(staged.shared))
        delete_below(self.events.folder, tasks.contested_folder(batch))
        return found

    def _with_verdicts(self, shared: list[File]) -> StagedFiles:
        """Compare rows that several gateways may have sent."""
        compare = partial(tasks.stage_shared, self.task, self._suspects(shared))
        if count_rows(shared) <= FEW_EVENTS:
            return compare()
        one = self.spark.range(0, 1, 1, 1)  # a frame, so that the workers of step 1 serve it
        return collected(one.mapInArrow(partial(_staged, compare), tasks.REPLY))

    def _suspects(self, shared: list[File]) -> Suspects:
        span = suspected_span(shared, self.task.shared)
        # Another gateway's row is as late as that gateway was offline, so only the time of the event bounds the search.
        first = min(date.fromisoformat(min(each.day for each in shared)), span[0].date())
        may_hold = self.ids.holding(self.events.recorded_within(span, max(first, date.min + EARLY) - EARLY), self._keys(shared))
        return Suspects([each.path for each in shared], may_hold, span)

    def _keys(self, staged: list[File]) -> Keys:
        return np.unique(np.concatenate([keys_in(self.events.folder, each.path) for each in staged]))

    def _read(self, paths: list[str]) -> DataFrame:
        return self.spark.read.parquet(*(f"{self.events.folder.path}/{each}" for each in paths))


def _stage(task: tasks.WorkerTask, batch: MicroBatch, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return tasks.stage_records(msgspec.structs.replace(task, plan=with_children(task.plan)), batch, records)


def _staged(work: Callable[[], StagedFiles], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in numbers:  # Spark ends a worker that leaves input unread, and the next micro-batch waits for a new one
        pass
    yield tasks.reply(work())


def suspected_span(shared: list[File], rules: list[SharedSettings]) -> tuple[datetime, datetime]:
    """Return the first and last `recordedtime` of these rows, extended on both sides by the widest window of the rules."""
    first, last = span_of(shared, "recordedtime")
    window = timedelta(microseconds=max(each.window_us for each in (*rules, SharedSettings())))
    earliest, latest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    return max(first, earliest + window) - window, min(last, latest - window) + window


def collected(replies: DataFrame) -> StagedFiles:
    """Run the tasks, and join their replies."""
    return joined([msgspec.json.decode(row["reply"], type=StagedFiles) for row in replies.collect()])


def joined(every: Sequence[StagedFiles]) -> StagedFiles:
    """Return all files of some tasks."""
    return StagedFiles(*([one for each in every for one in getattr(each, kind)] for kind in StagedFiles.__struct_fields__))


def derive(
    spark: SparkSession,
    work: Callable[[Iterable[str]], Iterator[bytes]],
    paths: list[str],
    parallel: int,
    *,
    alone: bool = False,
) -> Derived:
    """Do step 4: let workers `work` on the files, or the driver `alone`, and join the replies."""
    if alone or not paths:
        return _joined(work(paths))
    numbers = spark.range(0, len(paths), 1, min(len(paths), parallel))  # a frame, so that the workers of step 1 serve it
    return _joined(row["reply"] for row in numbers.mapInArrow(partial(_replies, work, paths), tasks.REPLY).collect())


def _joined(replies: Iterable[bytes]) -> Derived:
    every = [msgspec.json.decode(reply, type=Derived) for reply in replies]
    return Derived(
        [file for each in every for file in each.files],
        dict(sum((Counter(each.outcomes) for each in every), Counter())),
        sum(each.readings for each in every),
        [row for each in every for row in each.traced],
    )


def _replies(
    work: Callable[[Iterable[str]], Iterator[bytes]], paths: list[str], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    mine = [paths[number] for each in numbers for number in each.column("id").to_pylist()]
    for reply in work(mine):
        yield pa.RecordBatch.from_pydict({"reply": [reply]})


def warm_up(spark: SparkSession, parallel: int) -> None:
    """Let the workers start and load the parsers before there are records."""
    spark.range(0, parallel, 1, parallel).mapInArrow(_warm, tasks.REPLY).collect()


def _warm(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    installed()
    for _ in numbers:
        pass
    return iter(())


def mark_replayed(contested: DataFrame, settled: DataFrame) -> DataFrame:
    """Return the contested rows as duplicates if their event is settled, or contested earlier.

    A gateway sent them again (`replayed`), or their id is never used again (`COMPARED_BY_ID`): then a copy is marked `again`,
    and that of a `MARKED` event stays as it is. Its gateway may have marked it already. `settled`: rows of the table and of the
    micro-batch, with `outcome` and the identity. Reads `contested` twice.
    """
    known = (
        settled.where(F.col("outcome") != EventOutcome.DUPLICATE.value)
        .join(F.broadcast(contested.select(*_IDENTITY).distinct()), list(_IDENTITY), "left_semi")
        .select(*_IDENTITY, F.lit(True).alias("known"))
        .distinct()
    )
    in_order = Window.partitionBy(*_IDENTITY).orderBy("ingested", *KafkaPosition._fields)
    is_copy = F.coalesce(F.col("known"), F.lit(False)) | (F.row_number().over(in_order) > 1)
    by_id = F.coalesce(F.col("dedup").isin(*COMPARED_BY_ID), F.lit(False))
    names_first = F.col("properties").getItem(POSSIBLE_DUPLICATE).isNotNull()
    stays = by_id & (F.col("dedup") == Dedup.MARKED.value) & ~F.col("replayed")
    marked = contested.join(F.broadcast(known), list(_IDENTITY), "left").withColumn("is_copy", is_copy)
    marked = marked.withColumn("again", F.when(by_id, F.col("is_copy") | names_first).otherwise(F.col("again")))
    marked = marked.withColumn("is_known", F.col("is_copy") & ~stays)
    replaced = {
        "outcome": F.lit(EventOutcome.DUPLICATE.value),
        "reason": F.when(F.col("replayed"), "replayed").otherwise("shared"),
        "detail": F.lit(None),
        "readings": F.array().cast(schema.READINGS_TYPE),
        "data": F.lit(None),
    }
    return marked.select(
        *(
            F.when(F.col("is_known"), replaced[name]).otherwise(F.col(name)).alias(name) if name in replaced else F.col(name)
            for name in schema.names(schema.in_file(schema.EVENTS))
        )
    )
