"""What is derived from the rows of `events`: table rows, Kafka records, duplicates. DataFrame in, DataFrame out."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark uses

from fogline.gap import GapReason
from fogline_cloud import topics
from fogline_cloud.flows import schema
from fogline_cloud.flows.schema import Outcome
from fogline_cloud.flows.tables import Batch

MAX_COPIED_BYTES = 512 * 1024
"""A larger body is not copied into the slow and dead topics (header `fogline_body: table`): it stands in `events`."""

_WITH_BODY = (GapReason.REFUSED.value, GapReason.QUARANTINED.value)


def event_rows(parsed: DataFrame, tenant: str, batch: Batch) -> DataFrame:
    """Parsed records as rows of table `events`."""
    added = {
        "tenant": F.lit(tenant),
        "flow": F.lit(batch.flow),
        "run": F.lit(batch.run),
        "day": F.to_date("ingested"),
    }
    return parsed.select(*(added.get(name, F.col(name)).alias(name) for name in schema.names(schema.EVENTS)))


def mark_duplicates(rows: DataFrame, events: DataFrame) -> DataFrame:
    """Rows of `events` to be, those marked `replayed` made duplicates if their event is there already, or came before.

    `events`: what this flow has, without this batch. The first of several in one batch stays, a record that is not
    marked before any that is. `rows` is read twice, so it should be persisted.
    """
    identity = ["source", "id"]
    resent = rows.where("replayed").select(*identity).distinct()
    known = (
        events.where(F.col("outcome") != Outcome.DUPLICATE.value)
        .join(F.broadcast(resent), identity, "left_semi")
        .select(*identity, F.lit(True).alias("known"))
        .distinct()
    )
    in_order = Window.partitionBy(*identity).orderBy("replayed", "ingested", "topic", "partition", "offset")
    came_before = F.coalesce(F.col("known"), F.lit(False)) | (F.row_number().over(in_order) > 1)
    has_identity = F.col("source").isNotNull() & F.col("id").isNotNull()
    again = F.col("replayed") & has_identity & came_before
    instead = {
        "outcome": F.lit(Outcome.DUPLICATE.value),
        "reason": F.lit("replayed"),
        "detail": F.lit(None),
        "readings": F.array().cast(schema.READINGS_TYPE),
        "data": F.lit(None),
    }
    marked = rows.join(F.broadcast(known), identity, "left").withColumn("again", again)
    return marked.select(
        *(
            F.when(F.col("again"), instead[name]).otherwise(F.col(name)).alias(name) if name in instead else F.col(name)
            for name in schema.names(schema.EVENTS)
        )
    )


def reading_rows(events: DataFrame) -> DataFrame:
    """Rows of `events` as rows of table `readings`."""
    exploded = events.where(F.col("outcome") == Outcome.OK.value).select("*", F.explode("readings").alias("reading"))
    own = ("ordinal", "metric", "value", "text", "unit")
    columns: dict[str, Column] = {name: F.col(f"reading.{name}") for name in own}
    columns["time"] = F.coalesce("reading.time", "time", "recordedtime")
    return exploded.select(*(columns.get(name, F.col(name)).alias(name) for name in schema.names(schema.READINGS)))


def canonical_records(events: DataFrame, tenant: str) -> DataFrame:
    """Every reading as a JSON record."""
    fields = ("source", "id", "ordinal", "metric", "value", "text", "unit", "time", "recordedtime")
    return _records(
        reading_rows(events), topics.canonical(tenant), F.to_json(F.struct(*fields), _JSON), {_TYPE: F.lit("application/json")}
    )


def fleet_records(events: DataFrame, tenant: str) -> DataFrame:
    """Every event's metadata as a JSON record, without its body and its readings."""
    left_out = {"data", "readings", "day", "detail"}
    names = [name for name in schema.names(schema.EVENTS) if name not in left_out]
    value = F.to_json(F.struct(*names, F.size("readings").alias("readings")), _JSON)
    return _records(events, topics.fleet(tenant), value, {_TYPE: F.lit("application/json")})


def slow_records(events: DataFrame, tenant: str) -> DataFrame:
    """What the parser gave up on, as it came."""
    return _as_it_came(events.where(F.col("outcome") == Outcome.SLOW.value), topics.slow(tenant))


def dead_records(events: DataFrame, tenant: str) -> DataFrame:
    """What cannot be processed, as it came: dead and skipped records, and gap records that hold a refused body."""
    hopeless = F.col("outcome").isin(Outcome.DEAD.value, Outcome.SKIP.value)
    refused = (F.col("outcome") == Outcome.GAP.value) & F.col("reason").isin(*_WITH_BODY)
    return _as_it_came(events.where(hopeless | refused), topics.dead(tenant))


_TYPE = "content-type"
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def _as_it_came(events: DataFrame, topic: str) -> DataFrame:
    """The raw record again, with the reason in `fogline_reason` and `fogline_detail`."""
    copied = F.col("size_bytes") <= MAX_COPIED_BYTES
    plain = {
        "ce_id": "id",
        "ce_source": "source",
        "ce_type": "type",
        "ce_subject": "subject",
        "ce_gateway": "gateway",
        "ce_stream": "stream",
        "ce_sequence": "sequence",
        "ce_lane": "lane",
        "ce_timequality": "timequality",
        "ce_dedup": "dedup",
        _TYPE: "content_type",
        "device_id": "device",
        "orig_adapter": "adapter",
        "fogline_reason": "reason",
        "fogline_detail": "detail",
    }
    headers: dict[str, Column] = {
        "ce_specversion": F.lit("1.0"),
        **{header: F.col(column).cast("string") for header, column in plain.items()},
        "ce_time": _rfc3339("time"),
        "ce_recordedtime": _rfc3339("recordedtime"),
        "ce_replayed": F.when(F.col("replayed"), F.lit("true")),
        "fogline_body": F.when(~copied, F.lit("table")),
    }
    return _records(events, topic, F.when(copied, F.col("data")).otherwise(F.lit(b"")), headers)


def _rfc3339(column: str) -> Column:
    return F.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")


def _records(frame: DataFrame, topic: str, value: Column, headers: Mapping[str, Column]) -> DataFrame:
    """Columns as Spark's Kafka sink wants them; headers that are null are left out. The key is the device."""
    pairs = F.array(*(F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in headers.items()))
    return frame.select(
        F.lit(topic).alias("topic"),
        F.col("device").cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        F.filter(pairs, lambda pair: pair["value"].isNotNull()).alias("headers"),
    )
