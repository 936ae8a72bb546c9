"""One micro-batch: one commit decides, everything else is derived from that commit.

| step | what | when the batch is replayed |
|---|---|---|
| 1 | records are parsed, once | not again if step 2 had happened |
| 2 | append to `events` | the transaction id is there: nothing is written |
| 3 | the batch's rows are read back from `events` | the same rows |
| 4 | append to `readings` | the transaction id is there: nothing is written |
| 5 | canonical, slow, dead and fleet records to Kafka | once more, with the same ids: these topics are at least once |

Then Spark notes the batch as done. Whatever was killed in between, both tables hold every event exactly once.
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
    """What every micro-batch of a flow needs. `kafka`: options of Spark's Kafka sink. `tasks`: how many parse at once."""

    spark: SparkSession
    flow: str
    tables: Tables
    plan: Plan
    kafka: dict[str, str]
    tasks: int

    def land(self, raw: DataFrame, batch: Batch, *, decided: bool, on_progress: Callable[[Progress], None]) -> None:
        """Take one micro-batch all the way. `decided`: its rows are in `events` already."""
        begun = monotonic()
        summary = None if decided else self.decide(raw, batch)
        summary = self.derive(batch, summary)
        if batch.number % COMPACT_EVERY == COMPACT_EVERY - 1 and summary.days is not None:
            for path in (self.tables.events, self.tables.readings):
                tables.compact(self.spark, path, summary.days)
        events = sum(summary.outcomes.values())
        on_progress(Progress(batch.number, events, summary.readings, summary.outcomes, monotonic() - begun))

    def decide(self, raw: DataFrame, batch: Batch) -> Summary:
        """Steps 1 and 2. The parsed records are kept, because who sends again must be known before anything is written."""
        plan = replace(self.plan, batch=batch.number)
        parsed = raw.coalesce(self.tasks).mapInArrow(partial(parse, plan), schema.ddl(schema.PARSED))
        with _persisted(parsed):
            summary = summary_of(parsed.withColumn("day", F.to_date("ingested")))
            if summary.replayed:
                events = self.spark.read.format("delta").load(self.tables.events).where(F.col("flow") == self.flow)
                parsed = sinks.mark_duplicates(parsed, events)
            if summary.outcomes:
                append(sinks.event_rows(parsed, self.plan.tenant, batch), self.tables.events, batch, "events")
        return summary

    def derive(self, batch: Batch, summary: Summary | None = None) -> Summary:
        """Steps 3 to 5. Without a `summary` (or with one that duplicates have changed) the rows are counted first."""
        days = summary.days if summary is not None else None
        rows = tables.rows_of(self.spark, self.tables.events, batch, days)
        with _persisted(rows):
            if summary is None or summary.replayed:
                summary = summary_of(rows)
            if summary.readings:
                append(sinks.reading_rows(rows), self.tables.readings, batch, "readings")
            self.produce(rows, summary)
        return summary

    def produce(self, rows: DataFrame, summary: Summary) -> None:
        """Step 5, as one Spark job."""
        tenant = self.plan.tenant
        wanted = (
            (summary.readings, sinks.canonical_records),
            (summary.outcomes.get(Outcome.SLOW), sinks.slow_records),
            (sum(summary.outcomes.get(each, 0) for each in (Outcome.DEAD, Outcome.SKIP, Outcome.GAP)), sinks.dead_records),
            (sum(summary.outcomes.values()), sinks.fleet_records),
        )
        records = [transform(rows, tenant) for count, transform in wanted if count]
        if records:
            reduce(DataFrame.unionAll, records).write.format("kafka").options(**self.kafka).save()


def summary_of(rows: DataFrame) -> Summary:
    """Count rows (of `events`, or parsed ones with `day`)."""
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


def append(rows: DataFrame, path: str, batch: Batch, what: str) -> None:
    """Append to a Delta table, unless this batch's append is there already."""
    (
        rows.write.format("delta")
        .mode("append")
        .option("txnAppId", batch.application(what))
        .option("txnVersion", batch.number)
        .save(path)
    )


@contextmanager
def _persisted(frame: DataFrame) -> Iterator[None]:
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield
    finally:
        frame.unpersist()
