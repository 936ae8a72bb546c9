"""The flow's source: committed records of the tenant's three raw topics."""

import json
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud.flows.driver.spark_kafka_options import spark_options
from fogline_cloud.flows.start.positions import Positions
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.settings import CloudSettings

_EARLIEST = -2
_FETCH_WAIT_MS = 20
"""Time for which Kafka may hold a request at the end of a topic.

Each of Spark's consumers leaves such a request behind when a micro-batch ends, and the next micro-batch waits for its answer:
with Kafka's default of 500 ms, five records took 1.7 s instead of 0.2 s."""


def starting_offsets(partitions: Iterable[Partition], known: Positions) -> str:
    """Return Spark's `startingOffsets`: the offsets `known` to follow the table's rows, else the earliest record."""
    offsets: dict[str, dict[str, int]] = {}
    for topic, number in partitions:
        offsets.setdefault(topic, {})[str(number)] = known.get((topic, number), _EARLIEST)
    return json.dumps(offsets)


def raw_stream(spark: SparkSession, settings: CloudSettings, starting: str, max_events: int, **options: int | str) -> DataFrame:
    """Return the stream of raw records. Spark uses `starting` only if its checkpoint has no offsets yet.

    `options`: further options of Spark's Kafka source.
    """
    split = {} if settings.flow.min_partitions is None else {"minPartitions": settings.flow.min_partitions}
    stream = (
        spark.readStream.format("kafka")
        .options(**spark_options(settings.kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", _FETCH_WAIT_MS)
        .option("subscribe", ",".join(topics.of_lanes(settings.flow.lanes, settings.tenant)))
        .option("startingOffsets", starting)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", max_events)
        .options(**split, **options)
        .load()
    )
    return stream.select("topic", "partition", "offset", F.col("timestamp").alias("ingested"), "value", "headers")
