"""One micro-batch: one commit decides, everything else is derived from that commit.

| step | what | when the batch is replayed |
|---|---|---|
| 1 | records are parsed, once | not again if step 2 had happened |
| 2 | append to `events` | the transaction id is there: nothing is written |
| 3 | the rows of that commit are taken | read back from `events` |
| 4 | append to `readings` | the transaction id is there: nothing is written |
| 5 | canonical, slow, dead and fleet records to Kafka | once more, with the same ids: these topics are at least once |

Then Spark notes the batch as done. Whatever was killed in between, both tables hold every event exactly once.

Step 3 on a cluster, and where duplicates were marked, is always a reading back: an executor that is lost takes its
kept rows along, and parsing again could decide otherwise (a time-out is no property of the event). A local Spark
keeps the rows that it has just committed in its own memory and disk, where nothing is lost but with the process.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial, reduce
from time import monotonic

from msgspec.structs import replace
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows import schema, sinks, tables
from fogline_cloud.flows.parse import Plan, parse
from fogline_cloud.flows.schema import Outcome
from fogline_cloud.flows.tables import Batch, Tables

COMPACT_EVERY = 100
"""After so many batches the small files that they wrote are packed."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One finished micro-batch: events and readings, how many of each outcome, seconds that it took."""

    batch: int
    events: int
    readings: int
    outcomes: dict[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What a batch holds; `days` are the first and the last of its rows, `None` if there are none."""

    outcomes: dict[str, int]
    readings: int
    replayed: bool
    days: tuple[date, date] | None


@dataclass(frozen=True, slots=True)
class Landing:
    """What every micro-batch of a flow needs. `kafka`: options of Spark's Kafka sink.

    `tasks`: how many parse at once. `keeps`: rows that are kept cannot be lost (Spark is local).
    """

    spark: SparkSession
    flow: str
    tables: Tables
    plan: Plan
    kafka: dict[str, str]
    tasks: int
    keeps: bool

    def land(self, raw: DataFrame, batch: Batch, *, decided: bool, on_progress: Callable[[Progress], None]) -> None:
        """Take one micro-batch all the way. `decided`: its rows are in `events` already."""
        begun = monotonic()
        summary = self.finish(batch) if decided else self._begin(raw, batch)
        if batch.number % COMPACT_EVERY == COMPACT_EVERY - 1 and summary.days is not None:
            for path in (self.tables.events, self.tables.readings):
                tables.compact(self.spark, path, summary.days)
        events = sum(summary.outcomes.values())
        on_progress(Progress(batch.number, events, summary.readings, summary.outcomes, monotonic() - begun))

    def _begin(self, raw: DataFrame, batch: Batch) -> Summary:
        """Every step. Parsed rows are kept, because who sends again must be known before anything is written."""
        plan = replace(self.plan, batch=batch.number)
        parsed = raw.coalesce(self.tasks).mapInArrow(partial(parse, plan), schema.ddl(schema.PARSED))
        rows = sinks.event_rows(parsed, plan.tenant, batch)
        with _persisted(rows):
            summary = summary_of(rows)
            if summary.replayed:
                before = self.spark.read.format("delta").load(self.tables.events).where(F.col("flow") == self.flow)
                append_events(sinks.mark_duplicates(rows, before), self.tables, batch)
            elif summary.outcomes:
                append_events(rows, self.tables, batch)
            if self.keeps and not summary.replayed:
                self._derive(rows, summary, batch)
                return summary
        return self.finish(batch)

    def finish(self, batch: Batch) -> Summary:
        """Steps 3 to 5 for a batch whose rows are in `events`. As often as one likes."""
        rows = tables.rows_of(self.spark, self.tables.events, batch)
        with _persisted(rows):
            summary = summary_of(rows)
            self._derive(rows, summary, batch)
        return summary

    def _derive(self, rows: DataFrame, summary: Summary, batch: Batch) -> None:
        if summary.readings:
            append_readings(sinks.reading_rows(rows), self.tables, batch)
        produce(rows, summary, self.plan.tenant, self.kafka)


def append_events(rows: DataFrame, place: Tables, batch: Batch) -> None:
    """Step 2."""
    _append(rows, place.events, batch, "events")


def append_readings(rows: DataFrame, place: Tables, batch: Batch) -> None:
    """Step 4."""
    _append(rows, place.readings, batch, "readings")


def _append(rows: DataFrame, path: str, batch: Batch, what: str) -> None:
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", batch.application(what))
        .option("txnVersion", batch.number)
        .save(path)
    )


def produce(rows: DataFrame, summary: Summary, tenant: str, kafka: dict[str, str]) -> None:
    """Step 5, as one Spark job."""
    wanted = (
        (summary.readings, sinks.canonical_records),
        (summary.outcomes.get(Outcome.SLOW), sinks.slow_records),
        (sum(summary.outcomes.get(each, 0) for each in (Outcome.DEAD, Outcome.SKIP, Outcome.GAP)), sinks.dead_records),
        (sum(summary.outcomes.values()), sinks.fleet_records),
    )
    records = [transform(rows, tenant) for count, transform in wanted if count]
    if records:
        reduce(DataFrame.unionAll, records).write.format("kafka").options(**kafka).save()


def summary_of(rows: DataFrame) -> Summary:
    """Count rows of `events`."""
    counted = rows.groupBy("outcome").agg(
        F.count("*").alias("events"),
        F.sum(F.size("readings")).alias("readings"),
        F.max("replayed").alias("replayed"),
        F.min("day").alias("first"),
        F.max("day").alias("last"),
    )
    found = counted.collect()
    return Summary(
        outcomes={row["outcome"]: row["events"] for row in sorted(found, key=lambda row: row["outcome"])},
        readings=sum(row["readings"] for row in found),
        replayed=any(row["replayed"] for row in found),
        days=(min(row["first"] for row in found), max(row["last"] for row in found)) if found else None,
    )


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[None]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield
    finally:
        frame.unpersist()
