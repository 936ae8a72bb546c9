"""The columns of the Delta tables, with types and meaning. No Spark is needed. The flow only appends.

`events` holds one row per raw record, whatever its outcome. `readings` holds one row per parsed value. A row's position in
Kafka is `(topic, partition, offset)`, at the gateway `(gateway, stream, sequence)`; `(source, id)` identifies the event.
`raw` holds the raw records as they were read; `(topic_id, partition, offset)` identifies the row of a flow. `fleet` counts the
rows of `events` by day, device and more (`fogline_cloud.fleet`).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

READINGS_TYPE = "ARRAY<STRUCT<ordinal: INT, metric: STRING, value: DOUBLE, text: STRING, unit: STRING, time: TIMESTAMP>>"
HEADERS_TYPE = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
PROPERTIES_TYPE = "MAP<STRING, STRING>"
SIZES_TYPE = "ARRAY<STRUCT<at_most_bytes: BIGINT, events: BIGINT>>"
DELAYS_TYPE = "ARRAY<STRUCT<at_most_ms: BIGINT, events: BIGINT>>"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
READING = pa.struct(
    [
        ("ordinal", pa.int32()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("unit", pa.string()),
        ("time", _TIMESTAMP),
    ]
)
"""Type of an element of column `readings`."""
ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": _TIMESTAMP,
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    READINGS_TYPE: pa.list_(READING),
    PROPERTIES_TYPE: pa.map_(pa.string(), pa.string()),
    HEADERS_TYPE: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    SIZES_TYPE: pa.list_(pa.struct([("at_most_bytes", pa.int64()), ("events", pa.int64())])),
    DELAYS_TYPE: pa.list_(pa.struct([("at_most_ms", pa.int64()), ("events", pa.int64())])),
}


class EventOutcome(StrEnum):
    """Outcome of a record."""

    OK = "ok"
    """Parsed; its readings (there may be none) are in `readings`."""
    SKIP = "skip"
    """Nothing to parse, for a known reason."""
    SLOW = "slow"
    """The parser did not finish in time, or kept asking for another try."""
    DEAD = "dead"
    """Cannot be parsed; the row keeps the reason and the body."""
    GAP = "gap"
    """A gap record: the sequences `first_sequence` to `sequence` carry no event; or, with reason `RETENTION`, no record."""
    STATEMENT = "statement"
    """A gateway's ledger statement."""
    CHUNK = "chunk"
    """A part of a large body, or its end (reason `ended`); the event that refers to the body has a row of its own."""
    FORGOTTEN = "forgotten"
    """`fogline table forget` removed what the device sent; the row keeps its positions in Kafka and at the gateway."""
    DUPLICATE = "duplicate"
    """In the table already: sent again by a restored gateway (reason `replayed`), or by another gateway first (`shared`)."""


RETENTION = "retention"
"""Reason of a row for offsets that Kafka's retention deleted before the flow had read them."""


_AGAIN = (
    "true if another gateway delivered the same event first, or if its own gateway marked it as a copy; null if this was not "
    "checked"
)


class Column(NamedTuple):
    """One column of a table: its Spark SQL type and its meaning."""

    name: str
    type: str
    meaning: str


_RECORD = (
    Column("topic", "STRING", "Kafka topic of the raw record"),
    Column("partition", "INT", "Kafka partition; equal to the shard"),
    Column("offset", "BIGINT", "Kafka offset of the raw record"),
    Column("ingested", "TIMESTAMP", "timestamp that Kafka gave the record"),
)

DECIDED = (
    Column("gateway", "STRING", "gateway that sent the event; null if the event came from an AMQP client"),
    Column("stream", "STRING", "numbered stream of the event, 16 hex digits; null if the event came from an AMQP client"),
    Column(
        "first_sequence", "BIGINT", "first sequence number that the row stands for; equal to sequence except in a gap record"
    ),
    Column("sequence", "BIGINT", "sequence number in the stream, from 1; null if the event came from an AMQP client"),
    Column("lane", "STRING", "alarm, telemetry, bulk or reply"),
    Column("source", "STRING", "/{tenant}/devices/{device}; source and id together identify the event"),
    Column("id", "STRING", "identifier of the event, unique within its source"),
    Column("device", "STRING", "name of the device"),
    Column("type", "STRING", "CloudEvents type: telemetry, alarm or another"),
    Column("subject", "STRING", "channel of the device: MQTT topic, CoAP or HTTP path, or Bluetooth characteristic"),
    Column(
        "dedup",
        "STRING",
        "how reliably a retransmission of this event is recognised: strong, good or weak; several gateways may send it with "
        "this id: shared (compared within a time), unique (of any age) or marked (of any age, and copies are kept); none: "
        "several events may have this id",
    ),
    Column(
        "replayed",
        "BOOLEAN",
        "true if the gateway sent the event again in a new stream because it could not prove that it was unsent",
    ),
    Column("again", "BOOLEAN", _AGAIN),
    Column("time", "TIMESTAMP", "time that the device gave; null if it gave none"),
    Column("recordedtime", "TIMESTAMP", "time at which the gateway stored the event"),
    Column("timequality", "STRING", "state of the gateway's clock: synced, unsynced, or corrected afterwards"),
    Column("content_type", "STRING", "media type of the body, as the device gave it"),
    Column("adapter", "STRING", "protocol of the device: mqtt, coap, http, ble, amqp or another"),
    Column(
        "properties",
        PROPERTIES_TYPE,
        "what the device sent beside the body: MQTT 5 user properties, query and CloudEvents attributes of a request, AMQP "
        "application properties; of a repeated name the last; null if none. traceparent is that of W3C Trace Context",
    ),
    Column(
        "dataref",
        "STRING",
        "reference of an event to its large body, which is beside the tables (docs/large-bodies.md), or of a chunk; "
        "null if the event has its body itself",
    ),
    Column("outcome", "STRING", "ok, skip, slow, dead, gap, statement, chunk, forgotten or duplicate"),
    Column("reason", "STRING", "short stable word that says why the outcome is not ok; null if it is ok"),
    Column(
        "detail",
        "STRING",
        "the reason in words, at most 4000 characters; for an unknown error the end of its traceback; if the outcome is ok, "
        "the parts of the body that the parser did not understand, null if there are none",
    ),
    Column("parser", "STRING", "name of the parser that ran; null if none ran"),
    Column("parser_digest", "STRING", "SHA-256 of the wheel of a deployed parser; null if an installed one ran"),
    Column("parse_us", "BIGINT", "time that the parser took, in microseconds"),
    Column("readings", READINGS_TYPE, "values that the parser returned, in its order; ordinal counts from 0"),
)
"""Columns that are decided record by record (the fields of `fogline_cloud.flows.worker.classify.EventRow`)."""

_BODY = (
    Column("size_bytes", "BIGINT", "size of the body in bytes, also of a large one"),
    Column("data", "BINARY", "body of the event; null if the outcome is ok without a detail, chunk, forgotten or duplicate"),
)

_RUN = (
    Column("flow", "STRING", "name of the flow that wrote the row"),
    Column("run", "STRING", "uuid of the flow's checkpoint"),
    Column("batch", "BIGINT", "number of the micro-batch in that checkpoint"),
    Column("day", "DATE", "UTC day of ingested; the partition column"),
)

_TENANT = Column("tenant", "STRING", "name of the tenant")

RAW = (
    *_RECORD,
    Column("value", "BINARY", "body of the record, as it was read; null if the record has none"),
    Column("headers", HEADERS_TYPE, "headers of the record, as they were read, in their order; null if the record has none"),
    Column("topic_id", "STRING", "id that Kafka gave the topic; a topic that is created again gets another one"),
    _TENANT,
    *_RUN,
)

EVENTS = (*_RECORD, _TENANT, *DECIDED, *_BODY, *_RUN)

READINGS = (
    Column("source", "STRING", "/{tenant}/devices/{device}"),
    Column("id", "STRING", "id of the event that the reading belongs to"),
    Column("ordinal", "INT", "position of the reading in its event, from 0; (source, id, ordinal) identifies the reading"),
    Column("device", "STRING", "name of the device"),
    Column("metric", "STRING", "name of the measured quantity"),
    Column("value", "DOUBLE", "the number (booleans: 0 or 1); null if the reading is text"),
    Column("text", "STRING", "the text; for a number that a DOUBLE cannot hold exactly, its digits"),
    Column("unit", "STRING", "unit that the device gave; null if it gave none"),
    Column("time", "TIMESTAMP", "time of the reading, else of the event, else recordedtime"),
    Column("recordedtime", "TIMESTAMP", "time at which the gateway stored the event"),
    Column("ingested", "TIMESTAMP", "timestamp that Kafka gave the record"),
    Column("gateway", "STRING", "gateway that sent the event"),
    Column("stream", "STRING", "numbered stream of the event"),
    Column("sequence", "BIGINT", "sequence number of the event in its stream"),
    Column("again", "BOOLEAN", _AGAIN),
    *_RUN,
)

FLEET_KEYS = (
    _TENANT,
    Column("device", "STRING", "name of the device; null: rows of `events` that no device sent, of which only events counts"),
    Column("gateway", "STRING", "gateway that sent the events; null for an AMQP client"),
    Column("lane", "STRING", "alarm, telemetry, bulk or reply; null for an AMQP client"),
    Column("adapter", "STRING", "protocol of the device"),
    Column("firmware", "STRING", "property firmware of the events; null if they had none"),
    Column("parser", "STRING", "name of the parser that ran; null if none ran"),
    Column("heard", "DATE", "UTC day on which the gateway got the events, at most day; a gateway may have been offline since"),
)
"""Columns of `fleet` that identify a row within its day."""

FLEET = (
    *FLEET_KEYS,
    Column("events", "BIGINT", "number of events: rows of `events` that the row stands for"),
    Column("ok", "BIGINT", "events with outcome ok"),
    Column("skip", "BIGINT", "events with outcome skip"),
    Column("slow", "BIGINT", "events with outcome slow"),
    Column("dead", "BIGINT", "events with outcome dead"),
    Column("duplicate", "BIGINT", "events with outcome duplicate"),
    Column("bytes", "BIGINT", "sum of the bodies' sizes in bytes"),
    Column("most_bytes", "BIGINT", "size of the largest body in bytes"),
    Column(
        "first", "TIMESTAMP", "time at which the gateway got the first one; `ingested` if its clock was not known to be right"
    ),
    Column("last", "TIMESTAMP", "the same of the last one"),
    Column("delayed", "BIGINT", "events of which the delay is known: the gateway's clock was right"),
    Column("most_delay_ms", "BIGINT", "largest delay, from the gateway's `recordedtime` to `ingested`, in milliseconds"),
    Column("ahead", "BIGINT", "events whose own time is more than 5 minutes after `recordedtime`: the device's clock is wrong"),
    Column("behind", "BIGINT", "events whose own time is more than 7 days before `recordedtime`"),
    Column("sizes", SIZES_TYPE, "number of events by size of the body: steps of an eighth of a power of two"),
    Column("delays", DELAYS_TYPE, "number of events by delay: steps from a second to 30 days"),
    Column("day", "DATE", "UTC day of ingested; the partition column"),
)

TABLES = {"events": EVENTS, "readings": READINGS, "raw": RAW}
"""Columns of each table that the flow writes."""


def in_file(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of a table's files: every column except the partition column."""
    return columns[:-1]


def ddl(columns: tuple[Column, ...]) -> str:
    """Return the column list as Spark reads it."""
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def ddl_with_meaning(columns: tuple[Column, ...]) -> str:
    """Return the column list of a CREATE TABLE, with each meaning as a comment."""
    quoted = str.maketrans({"'": "\\'"})
    return ", ".join(f"`{column.name}` {column.type} COMMENT '{column.meaning.translate(quoted)}'" for column in columns)


def literal(text: str) -> str:
    """Return a text as an SQL literal, for delta-rs."""
    return "'" + text.replace("'", "''") + "'"


def names(columns: tuple[Column, ...]) -> list[str]:
    """Return the columns' names."""
    return [column.name for column in columns]


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """Return columns as an Arrow schema."""
    return pa.schema([(column.name, ARROW[column.type]) for column in columns])


def conformed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with exactly the columns of `schema`: writers differ in time zones, and older files lack columns."""
    known = set(rows.column_names)
    columns = (
        rows.column(each.name).cast(each.type) if each.name in known else pa.nulls(rows.num_rows, each.type) for each in schema
    )
    return pa.table(list(columns), schema=schema)


KAFKA_RECORD = ("topic", "partition", "offset", "ingested", "value", "headers")
"""Columns of a raw record as the flow reads it from Kafka."""
STORED = arrow_schema(in_file(EVENTS))
"""Columns of table `events` in its files."""
RAW_STORED = arrow_schema(in_file(RAW))
"""Columns of table `raw` in its files."""
MEASURED = {
    "events": ("run", "batch", "ingested", "recordedtime", "stream", "sequence"),
    "readings": ("run", "batch", "time", "device"),
    "raw": ("run", "batch", "offset", "ingested"),
    "fleet": ("device", "last"),
}
"""Columns that the files of each table keep statistics of, so that queries can skip files."""
