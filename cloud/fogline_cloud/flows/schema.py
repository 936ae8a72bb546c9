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
    Column("partition", "INT", "Kafka partition, which is the shard"),
    Column("offset", "BIGINT", "Kafka offset"),
    Column("ingested", "TIMESTAMP", "when Kafka has the record from"),
)

DECIDED = (
    Column("gateway", "STRING", "the gateway that sent it; null if no gateway numbered it"),
    Column("stream", "STRING", "the numbered stream, 16 hex digits; null if no gateway numbered it"),
    Column("first_sequence", "BIGINT", "equal to sequence, but for a gap: the first sequence that it stands for"),
    Column("sequence", "BIGINT", "place in the stream, from 1; null if no gateway numbered it"),
    Column("lane", "STRING", "alarm, telemetry, bulk or reply"),
    Column("source", "STRING", "the device as /tenant/devices/device; with id the identity of the event"),
    Column("id", "STRING", "unique within its source"),
    Column("device", "STRING", "the device"),
    Column("type", "STRING", "kind of event: telemetry, alarm, ..."),
    Column("subject", "STRING", "where at the device it came from: MQTT topic, CoAP path, characteristic"),
    Column("dedup", "STRING", "how surely a resend is recognised: strong, good, weak; shared: other gateways give it this id"),
    Column("replayed", "BOOLEAN", "sent again by a gateway that could not prove it unsent"),
    Column("again", "BOOLEAN", "whether another gateway told of it first; null if that was not asked"),
    Column("time", "TIMESTAMP", "the device's own time, null if it gave none"),
    Column("recordedtime", "TIMESTAMP", "when the gateway stored it"),
    Column("timequality", "STRING", "whether the gateway's clock was known to be right: synced, unsynced, corrected (later)"),
    Column("content_type", "STRING", "media type of the body as the device gave it"),
    Column("adapter", "STRING", "the protocol that it came by"),
    Column("outcome", "STRING", "ok, skip, slow, dead, gap, statement or duplicate"),
    Column("reason", "STRING", "short stable word for why it is not ok; null if it is"),
    Column("detail", "STRING", "the reason in words, at most 4000 characters; the end of the traceback of an unknown error"),
    Column("parser", "STRING", "name of the parser that was asked; null if none was"),
    Column("parse_us", "BIGINT", "microseconds that the parser took"),
    Column("readings", READINGS_TYPE, "what was parsed, in the parser's order; ordinal counts from 0"),
)
"""What the decision about one record fills in (`fogline_cloud.flows.outcome.Row` has exactly these fields)."""

_BODY = (
    Column("size_bytes", "BIGINT", "size of the body"),
    Column("data", "BINARY", "the body as it came, kept only where the outcome is skip, slow, dead, gap or statement"),
)

_RUN = (
    Column("flow", "STRING", "the flow that wrote the row"),
    Column("run", "STRING", "uuid of the flow's checkpoint"),
    Column("batch", "BIGINT", "micro-batch of that checkpoint"),
    Column("day", "DATE", "day of ingested, in UTC; the partition column"),
)

EVENTS = (*_RECORD, Column("tenant", "STRING", "the tenant"), *DECIDED, *_BODY, *_RUN)
"""Table `events`."""

READINGS = (
    Column("source", "STRING", "the device as /tenant/devices/device"),
    Column("id", "STRING", "of the event that it was parsed out of"),
    Column("ordinal", "INT", "place within the event, from 0; (source, id, ordinal) is the identity"),
    Column("device", "STRING", "the device"),
    Column("metric", "STRING", "what was measured"),
    Column("value", "DOUBLE", "the number (booleans: 0 or 1); null if it is text"),
    Column("text", "STRING", "the text; beside a value: its exact digits where a double cannot hold them"),
    Column("unit", "STRING", "the unit, if the device gave one"),
    Column("time", "TIMESTAMP", "the reading's own time, else the event's, else recordedtime"),
    Column("recordedtime", "TIMESTAMP", "when the gateway stored the event"),
    Column("ingested", "TIMESTAMP", "when Kafka has the record from"),
    Column("gateway", "STRING", "the gateway that sent the event"),
    Column("stream", "STRING", "the numbered stream"),
    Column("sequence", "BIGINT", "place of the event in the stream"),
    Column("again", "BOOLEAN", "whether another gateway told of the event first; null if that was not asked"),
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
