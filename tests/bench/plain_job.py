"""Plain PySpark job for comparison with the flow: read the topics, parse, append the readings to one table.

    python tests/bench/plain_job.py SETTINGS FOLDER

The same Spark settings, source and parsers as the flow, the same micro-batches, and Java as it is by default, which is faster
for this job; no table of events, no deduplication, no time limit for parsers, no derived topics, nothing that would make a
replayed batch harmless. Prints one JSON line a batch.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fogline.events.event import parse_rfc3339
from fogline_cloud.flows.driver.session import spark_session
from fogline_cloud.flows.driver.source import raw_stream, starting_offsets
from fogline_cloud.flows.job import preflight
from fogline_cloud.flows.parsers import installed, parser_name
from fogline_cloud.flows.start.topic_ids import read_topic_ids
from fogline_cloud.kafka.records import event_of
from fogline_cloud.settings import load

_TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("id", pa.string()),
        ("ordinal", pa.int32()),
        ("device", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("unit", pa.string()),
        ("time", _TIME),
        ("recordedtime", _TIME),
        ("ingested", _TIME),
        ("gateway", pa.string()),
        ("stream", pa.string()),
        ("sequence", pa.int64()),
    ]
)
DDL = (
    "source STRING, id STRING, ordinal INT, device STRING, metric STRING, value DOUBLE, text STRING, unit STRING, "
    "time TIMESTAMP, recordedtime TIMESTAMP, ingested TIMESTAMP, gateway STRING, stream STRING, sequence BIGINT"
)


def parse(tenant: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records to readings."""
    for batch in batches:
        rows = [row for record in records(batch) for row in readings(tenant, *record)]
        columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
        yield pa.RecordBatch.from_arrays([pa.array(*each) for each in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def records(batch: pa.RecordBatch) -> Iterator[tuple[dict[str, bytes], bytes, int]]:
    """Headers, value and timestamp of each record."""
    headers = batch.column("headers")
    names, values = (each.to_pylist() for each in headers.values.flatten())
    offsets = headers.offsets.to_pylist()
    ingested = batch.column("ingested").cast(pa.int64()).to_pylist()
    for row, (value, at) in enumerate(zip(batch.column("value").to_pylist(), ingested, strict=True)):
        span = slice(offsets[row], offsets[row + 1])
        yield dict(zip(names[span], values[span], strict=True)), value, at


def readings(tenant: str, headers: dict[str, bytes], value: bytes, ingested: int) -> Iterator[tuple]:
    """One event's rows."""
    event = event_of(headers, value, tenant)
    recorded = parse_rfc3339(event.recordedtime) // 1000
    own = recorded if event.time is None else parse_rfc3339(event.time) // 1000
    place = (recorded, ingested, event.gateway, event.stream, event.sequence)
    for ordinal, each in enumerate(installed()[parser_name(event.content_type, {})](event)):
        time = own if each.time_ns is None else each.time_ns // 1000
        yield event.source, event.id, ordinal, event.device, each.metric, each.value, each.text, each.unit, time, *place


def main() -> None:
    """Over what is there, then end."""
    settings, folder = load(Path(sys.argv[1])), sys.argv[2]
    settings.flow.spark["spark.driver.defaultJavaOptions"] = ""
    preflight(settings)

    def land(raw: DataFrame, number: int) -> None:
        parsed = raw.coalesce(spark.sparkContext.defaultParallelism).mapInArrow(
            lambda batches: parse(settings.tenant, batches), DDL
        )
        day = parsed.withColumn("day", F.to_date("ingested"))
        day.write.format("delta").partitionBy("day").mode("append").save(f"{folder}/readings")
        print(json.dumps({"batch": number, "events": settings.flow.max_events_per_batch}), flush=True)

    with spark_session(settings) as spark:
        starting = starting_offsets(read_topic_ids(settings).partitions, {})
        stream = raw_stream(spark, settings, starting, settings.flow.max_events_per_batch)
        query = stream.writeStream.option("checkpointLocation", f"{folder}/checkpoint").foreachBatch(land)
        query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
