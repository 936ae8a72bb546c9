"""Where raw records come from: the three raw topics of a tenant, committed records only."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline_cloud import topics
from fogline_cloud.flows.kafka import spark_options
from fogline_cloud.flows.tables import Offsets
from fogline_cloud.kafka import KafkaClients
from fogline_cloud.settings import Settings

RAW = ("topic", "partition", "offset", "ingested", "value", "headers")
"""What a record is to the flow."""
_EARLIEST = -2


def partitions(settings: Settings) -> dict[str, int]:
    """Partition counts of the topics that the flow reads and writes.

    Raises `Misconfigured` if Kafka does not answer or a topic is missing.
    """
    found = KafkaClients(settings.kafka).topics()
    wanted = [*topics.raw_topics(settings.tenant), *derived_topics(settings.tenant)]
    topics.require(wanted, found)
    return {name: found[name] for name in wanted}


def derived_topics(tenant: str) -> list[str]:
    """The topics that the flow writes."""
    return [topics.canonical(tenant), topics.slow(tenant), topics.dead(tenant), topics.fleet(tenant)]


def starting_offsets(tenant: str, counts: Mapping[str, int], known: Offsets) -> str:
    """Spark's `startingOffsets`: after what the table has, the earliest record where it has nothing."""
    return json.dumps(
        {
            topic: {str(number): known.get(topic, {}).get(number, _EARLIEST) for number in range(counts[topic])}
            for topic in topics.raw_topics(tenant)
        }
    )


def raw_stream(spark: SparkSession, settings: Settings, starting: str) -> DataFrame:
    """The stream of raw records. `starting` counts only for a checkpoint that has no offsets yet."""
    stream = (
        spark.readStream.format("kafka")
        .options(**spark_options(settings.kafka))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(topics.raw_topics(settings.tenant)))
        .option("startingOffsets", starting)
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", settings.flow.max_events_per_batch)
        .load()
    )
    return stream.select("topic", "partition", "offset", F.col("timestamp").alias("ingested"), "value", "headers")
