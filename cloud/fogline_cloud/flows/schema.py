"""The two Delta tables: every column, its type and its meaning, in one place. No Spark is needed to read this.

`events` holds one row per raw record, whatever became of it; `readings` one row per value that was parsed out of one.
Both are append-only. A row's place in Kafka is `(topic, partition, offset)`; its place at the gateway
`(gateway, stream, sequence)`; what it is, `(source, id)`, and for a reading `(source, id, ordinal)`.
"""

from enum import StrEnum
from typing import NamedTuple

READINGS_TYPE = "ARRAY<STRUCT<ordinal: INT, metric: STRING, value: DOUBLE, text: STRING, unit: STRING, time: TIMESTAMP>>"


class Outcome(StrEnum):
    """What became of a record."""

    OK = "ok"
    """Parsed; its readings (there may be none) are in `readings`."""
    SKIP = "skip"
    """Known to be nothing that this flow parses, with the reason."""
    SLOW = "slow"
    """The parser did not finish in time, or kept asking for another try."""
    DEAD = "dead"
    """It cannot be parsed, with the reason; kept whole."""
    GAP = "gap"
    """A gap record: stands for the sequences `first_sequence` to `sequence`, which carry no event."""
    STATEMENT = "statement"
    """A gateway's ledger statement."""
    DUPLICATE = "duplicate"
    """Already here: sent again by a restored gateway (reason `replayed`), or heard by another one first (`shared`)."""


class Column(NamedTuple):
    """One column of a table: a Spark SQL type, and what it means."""

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
        "first_sequence",
        "BIGINT",
        "first sequence number that the row stands for; equal to sequence except in a gap record",
    ),
    Column("sequence", "BIGINT", "sequence number in the stream, from 1; null if the event came from an AMQP client"),
    Column("lane", "STRING", "alarm, telemetry, bulk or reply"),
    Column("source", "STRING", "/{tenant}/devices/{device}; source and id together identify the event"),
    Column("id", "STRING", "identifier of the event, unique within its source"),
    Column("device", "STRING", "name of the device"),
    Column("type", "STRING", "CloudEvents type: telemetry, alarm or another"),
    Column("subject", "STRING", "channel of the device: MQTT topic, CoAP path or Bluetooth characteristic"),
    Column(
        "dedup",
        "STRING",
        "how reliably a retransmission of this event is recognised: strong, good or weak; shared: several gateways "
        "may send it with this id",
    ),
    Column(
        "replayed",
        "BOOLEAN",
        "true if the gateway sent the event again in a new stream because it could not prove that it was unsent",
    ),
    Column("again", "BOOLEAN", "true if another gateway delivered the same event first; null if this was not checked"),
    Column("time", "TIMESTAMP", "time that the device gave; null if it gave none"),
    Column("recordedtime", "TIMESTAMP", "time at which the gateway stored the event"),
    Column("timequality", "STRING", "state of the gateway's clock: synced, unsynced, or corrected afterwards"),
    Column("content_type", "STRING", "media type of the body, as the device gave it"),
    Column("adapter", "STRING", "protocol of the device: mqtt, coap, ble, amqp or another"),
    Column("outcome", "STRING", "ok, skip, slow, dead, gap, statement or duplicate"),
    Column("reason", "STRING", "short stable word that says why the outcome is not ok; null if it is ok"),
    Column("detail", "STRING", "the reason in words, at most 4000 characters; for an unknown error the end of its traceback"),
    Column("parser", "STRING", "name of the parser that ran; null if none ran"),
    Column("parse_us", "BIGINT", "time that the parser took, in microseconds"),
    Column("readings", READINGS_TYPE, "values that the parser returned, in its order; ordinal counts from 0"),
)
"""What the decision about one record fills in (`fogline_cloud.flows.outcome.Row` has exactly these fields)."""

_BODY = (
    Column("size_bytes", "BIGINT", "size of the body in bytes"),
    Column("data", "BINARY", "body of the event, kept only if the outcome is skip, slow, dead, gap or statement"),
)

_RUN = (
    Column("flow", "STRING", "name of the flow that wrote the row"),
    Column("run", "STRING", "uuid of the flow's checkpoint"),
    Column("batch", "BIGINT", "number of the micro-batch in that checkpoint"),
    Column("day", "DATE", "UTC day of ingested; the partition column"),
)

EVENTS = (*_RECORD, Column("tenant", "STRING", "name of the tenant"), *DECIDED, *_BODY, *_RUN)
"""Table `events`."""

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
    Column("again", "BOOLEAN", "true if another gateway delivered the same event first; null if this was not checked"),
    *_RUN,
)
"""Table `readings`."""


def in_file(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """What a table's files hold: every column but the partition column."""
    return columns[:-1]


def ddl_with_meaning(columns: tuple[Column, ...]) -> str:
    """Columns as the column list of a CREATE TABLE, so that the table itself says what they mean."""
    return ", ".join(f"`{column.name}` {column.type} COMMENT '{_quoted(column.meaning)}'" for column in columns)


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")


def names(columns: tuple[Column, ...]) -> list[str]:
    """The names, in the table's order."""
    return [column.name for column in columns]
