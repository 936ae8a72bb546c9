"""One micro-batch: one commit decides, everything else is derived from that commit.

| step | what | when the batch is replayed |
|---|---|---|
| 1 | workers parse the records, once, and write files of `events` | not again if step 2 had happened |
| 2 | the files are committed to `events` | the transaction id is there: nothing is committed |
| 3 | workers read the committed rows back, send derived records to Kafka, write files of `readings` | once more, same ids |
| 4 | the files are committed to `readings` | the transaction id is there: nothing is committed |

Then Spark notes the batch as done. Whatever was killed in between, both tables hold every event exactly once; the derived
topics (canonical, slow, dead, fleet) hold it at least once. A file that no commit names is no part of a table (Delta's
VACUUM removes it).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial, reduce
from time import monotonic

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows import tasks
from fogline_cloud.flows.batch import Batch, Derived, File, Landed, Suspects
from fogline_cloud.flows.compaction import Compaction
from fogline_cloud.flows.delta_log import DeltaLog
from fogline_cloud.flows.duplicates import IDENTITY, mark_replayed
from fogline_cloud.flows.files import delete_below, span_of
from fogline_cloud.flows.owner import Owner
from fogline_cloud.flows.parse import Plan
from fogline_cloud.flows.tables import Tables
from fogline_cloud.flows.topic_ids import TopicIds
from fogline_cloud.settings import Scalar, SharedSettings

HORIZON = timedelta(days=2)
"""For how long after one gateway's row another one's is held against it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One finished micro-batch: events and readings, how many of each outcome, seconds that it took.

    `failed_compactions`: how often packing small files failed since the query began.
    """

    batch: int
    events: int
    readings: int
    outcomes: dict[str, int]
    seconds: float
    failed_compactions: int = 0


@dataclass(frozen=True, slots=True)
class Landing:
    """What every micro-batch of a flow needs.

    `kafka`: librdkafka's settings. `parallel`: how many tasks run at once. `shared`: what becomes of what several
    gateways heard.
    """

    spark: SparkSession
    tables: Tables
    events: DeltaLog
    readings: DeltaLog
    plan: Plan
    owner: Owner
    topic_ids: TopicIds
    kafka: dict[str, Scalar]
    parallel: int
    shared: list[SharedSettings]
    compaction: Compaction

    def land(self, raw: DataFrame, batch: Batch, *, decided: bool, on_progress: Callable[[Progress], None]) -> None:
        """Take one micro-batch all the way. `decided`: its rows are in `events` already."""
        begun = monotonic()
        derived = self.finish(batch) if decided else self._begin(raw, batch)
        self.compaction.after(batch.number, [date.fromisoformat(each.day) for each in derived.files])
        outcomes = dict(sorted(derived.outcomes.items()))
        events, seconds = sum(derived.outcomes.values()), monotonic() - begun
        on_progress(Progress(batch.number, events, derived.readings, outcomes, seconds, self.compaction.failures))

    def _begin(self, raw: DataFrame, batch: Batch) -> Derived:
        """Every step."""
        landed = _landed(raw.coalesce(self.parallel).mapInArrow(partial(tasks.land, self._work(batch)), tasks.SAID))
        files = landed.files
        if landed.replayed or landed.shared:
            files = files + self._decide(landed, batch)
        self.topic_ids.check()  # after reading: offsets of a topic that was made again are no offsets of these records
        append_events(self.events, files, batch, self.owner)
        return self._derive([each.path for each in files], batch)

    def _decide(self, landed: Landed, batch: Batch) -> list[File]:
        """What may be there is held against the table, and against the rest of the batch, before anything is committed."""
        work = self._work(batch)
        files: list[File] = []
        if landed.replayed:
            flow = self.spark.read.format("delta").load(self.tables.events.path).where(F.col("flow") == batch.flow)
            settled = [frame.select("outcome", *IDENTITY) for frame in (flow, *self._uncommitted(landed.files))]
            contested = reduce(DataFrame.unionByName, self._uncommitted(landed.replayed))
            marked = mark_replayed(contested, reduce(DataFrame.unionByName, settled))
            files += _landed(marked.coalesce(self.parallel).mapInArrow(partial(tasks.store, work), tasks.SAID)).files
        if landed.shared:
            suspects = self.spark.sparkContext.parallelize([self._suspects(landed.shared)], 1)
            (said,) = suspects.map(partial(tasks.settle_shared, work)).collect()
            files += msgspec.json.decode(said, type=Landed).files
        delete_below(self.tables.events, tasks.contested_in(batch))
        return files

    def _suspects(self, shared: list[File]) -> Suspects:
        """These rows, and the files of those that they may be copies of."""
        span = suspected_span(shared, self.shared)
        since = date.fromisoformat(min(each.day for each in shared)) - HORIZON
        return Suspects([each.path for each in shared], self.events.recorded_within(span, since), span)

    def _uncommitted(self, files: list[File]) -> list[DataFrame]:
        return [self.spark.read.parquet(f"{self.tables.events.path}/{each.path}") for each in files]

    def finish(self, batch: Batch) -> Derived:
        """Steps 3 and 4 for a batch whose rows are in `events`. As often as one likes."""
        return self._derive(self.events.holding(batch), batch)

    def _derive(self, paths: list[str], batch: Batch) -> Derived:
        derived = derive(self.spark, self._work(batch), paths, self.parallel)
        append_readings(self.readings, derived.files, batch, self.owner)
        return derived

    def _work(self, batch: Batch) -> tasks.Work:
        return tasks.Work(
            plan=self.plan,
            batch=batch,
            events=self.tables.events,
            readings=self.tables.readings,
            kafka=self.kafka,
            shared=self.shared,
        )


def suspected_span(shared: list[File], rules: list[SharedSettings]) -> tuple[datetime, datetime]:
    """When these rows were recorded, first and last, with the rules' widest window before and after."""
    first, last = span_of(shared, "recordedtime")
    window = timedelta(microseconds=max(each.window_us for each in (*rules, SharedSettings())))
    earliest, latest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    return max(first, earliest + window) - window, min(last, latest - window) + window


def _landed(said: DataFrame) -> Landed:
    every = [msgspec.json.decode(row["said"], type=Landed) for row in said.collect()]
    return Landed(*([file for each in every for file in getattr(each, kind)] for kind in Landed.__struct_fields__))


def append_events(log: DeltaLog, files: list[File], batch: Batch, owner: Owner) -> None:
    """Step 2."""
    log.append(files, batch, owner)


def derive(spark: SparkSession, work: tasks.Work, paths: list[str], parallel: int) -> Derived:
    """Step 3, but for the commit."""
    if not paths:
        return Derived([], {}, 0)
    spread = spark.sparkContext.parallelize(paths, min(len(paths), parallel))
    every = [msgspec.json.decode(said, type=Derived) for said in spread.mapPartitions(partial(tasks.derive, work)).collect()]
    return Derived(
        [file for each in every for file in each.files],
        dict(sum((Counter(each.outcomes) for each in every), Counter())),
        sum(each.readings for each in every),
    )


def append_readings(log: DeltaLog, files: list[File], batch: Batch, owner: Owner) -> None:
    """Step 4."""
    log.append(files, batch, owner)
