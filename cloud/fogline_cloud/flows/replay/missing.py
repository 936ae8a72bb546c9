"""Records of table `raw` that `events` lacks: Kafka deleted them before the flow that parses had read them."""

import logging
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.errors import Misconfigured, Unreachable
from fogline.events.identity import COMPARED_BY_ID
from fogline_cloud.flows.driver.commit import mark_replayed
from fogline_cloud.flows.replay.reparse import DIFFERENCES, WAS
from fogline_cloud.flows.replay.stored import NEVER, POSITION, RUN, LowestOffsets
from fogline_cloud.flows.start.topic_ids import read_topic_ids
from fogline_cloud.flows.tables import schema
from fogline_cloud.kafka.records import REBUILT
from fogline_cloud.settings import CloudSettings

MISSING = "missing"
"""Former outcome of a record without a row."""

_PARTITION = ["topic", "topic_id", "partition"]
_SEQUENCE = ["gateway", "stream", "sequence"]
_BEGINS = "topic STRING, topic_id STRING, partition INT, begin BIGINT"

log = logging.getLogger(__name__)


def lowest_offsets(settings: CloudSettings) -> LowestOffsets:
    """Return the first offset that Kafka has of each partition that the flow reads; none if Kafka does not answer."""
    try:
        known = read_topic_ids(settings)
        bounds = known.clients.bounds(known.partitions)
    except (Misconfigured, Unreachable) as error:
        log.warning("only records before the last row of a partition are looked for: %s", error)
        return {}
    return {(topic, known.ids.get(topic), number): first for (topic, number), (first, _) in bounds.items()}


def missing_records(raw: DataFrame, events: DataFrame, days: tuple[date, date], lowest: LowestOffsets) -> DataFrame:
    """Return the records of these days that have no row in `events`, and that the flow does not read any more.

    Columns: `KAFKA_RECORD`. These are the records before the last one of their partition that has a row, and those that Kafka
    has no more. `raw`, `events`: rows of one flow.
    """
    rebuilt = F.exists("headers", lambda each: each["key"] == REBUILT)  # the events have rows
    recent = raw.where(F.col("day") >= F.lit(days[0])).where(~F.coalesce(rebuilt, F.lit(False)))
    landed = events.where(F.col("day") >= F.lit(days[0])).select(*POSITION)
    passed = recent.join(landed, POSITION, "left_semi").groupBy(*_PARTITION).agg(F.max("offset").alias("last"))
    wanted = recent.where(F.col("day") <= F.lit(days[1])).join(landed, POSITION, "left_anti")
    begins = raw.sparkSession.createDataFrame([(*key, first) for key, first in lowest.items()], _BEGINS)
    is_known = F.col("topic").isin(sorted({topic for topic, _, _ in lowest}))
    gone = F.coalesce("begin", F.when(is_known, F.lit(NEVER)), F.lit(0))  # of a topic that was created again: all
    return (
        wanted.join(F.broadcast(passed), _PARTITION, "left")
        .join(F.broadcast(begins), _PARTITION, "left")
        .where(F.col("offset") < F.greatest(F.coalesce("last", F.lit(0)), gone))
        .dropDuplicates(POSITION)
        .select(*schema.KAFKA_RECORD)
    )


def as_changed(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Return rows of missing records with the columns `reparse.CHANGED`. An event that has a row already is a duplicate.

    A sequence that has a row is left out: its record was copied to another Kafka (`fogline topics rebuild`).
    `events`: all rows of the flow. Events that several gateways receive (`dedup` is `shared`) are not compared: if in doubt, an
    event stays.
    """
    rows = rows.join(events.select(*_SEQUENCE), _SEQUENCE, "left_anti")
    names = schema.names(schema.in_file(schema.EVENTS))
    compared = F.col("replayed") | F.coalesce(F.col("dedup").isin(*COMPARED_BY_ID), F.lit(False))
    first = rows.where(~compared).select(names)
    settled = events.select("outcome", "source", "id").unionByName(first.select("outcome", "source", "id"))
    every = first.unionByName(mark_replayed(rows.where(compared).select(names), settled))
    came = F.transform("readings", lambda each: F.struct(each["metric"].alias("metric"), F.lit("came").alias("change")))
    every = every.withColumn("run", F.concat(F.lit(RUN), F.to_date("ingested").cast("string")))
    return every.withColumn(WAS, F.lit(MISSING)).withColumn(DIFFERENCES, came)
