"""A tenant whose topics and tables are filled without a gateway, a bridge or Spark: for what the ledger finds in them.

`make_site` makes it. Streams `AIR`, `ALARMS` and `YARD` have all their events; a gap record explains 41 to 43 of `AIR`.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake

from fogline.events.event import Event, Lane, rfc3339
from fogline.events.gap import Gap, GapReason, decode_gap, gap_event
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Counts, Statement, encode_statement
from fogline_cloud.flows.tables.schema import EVENTS, READINGS, Column, EventOutcome
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka.records import position_of, record_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import NOW_NS, make_event

SHARDS = 2
AIR, ALARMS, YARD = "00000000000000aa", "00000000000000bb", "00000000000000cc"
NOBODYS = "00000000000000ff"
_GROUP = [
    ("ordinal", pa.int32()),
    ("metric", pa.string()),
    ("value", pa.float64()),
    ("text", pa.string()),
    ("unit", pa.string()),
]
_TIME = pa.timestamp("us", "UTC")
_TYPES = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": _TIME,
    "DATE": pa.date32(),
    "BINARY": pa.binary(),
}
_numbers = itertools.count(1)


# --- what is true


def stream_of(
    gateway: str,
    stream: str,
    lane: Lane,
    events: int,
    gap: tuple[int, int] | None = None,
    *,
    settled: int = 0,
    ended_ns: int = NOW_NS,
) -> list[Event]:
    """A stream as its gateway has sent it, an event a second, with its last word at `ended_ns`.

    `gap`: dropped, a record stands for them. `settled`: what the gateway had handed on when it wrote its last word.
    """
    place: dict[str, Any] = {"gateway": gateway, "stream": stream, "lane": lane}
    times = {sequence: ended_ns - (events + 1 - sequence) * 10**9 for sequence in range(1, events + 1)}
    sent = [make_event(n, id=f"{stream}.{n}", recordedtime=rfc3339(time), **place) for n, time in times.items()]
    if gap is not None:
        dropped = Gap(GapReason.DROPPED, *gap, "the outbox was full")
        tenant = sent[0].tenant
        record = gap_event(dropped, tenant=tenant, gateway=gateway, stream=stream, lane=lane, now_ns=times[gap[1]])
        sent[gap[0] - 1 : gap[1]] = [record]
    counts = Counts(acknowledged=events + 2, duplicate=2, stored=events, settled=settled or events)
    word = encode_statement(Statement(stream, lane.value, counts))
    content = {"content_type": STATEMENT_CONTENT_TYPE, "device": gateway, "type": "ledger", "data": word}
    last = make_event(events + 1, id=f"{stream}.{events + 1}", recordedtime=rfc3339(ended_ns), **place, **content)
    return [*sent, last]


SHARD_OF = {"gw-1": 0, "gw-2": 1}
EVERYTHING = [
    *stream_of("gw-1", AIR, Lane.TELEMETRY, 60, gap=(41, 43)),
    *stream_of("gw-1", ALARMS, Lane.ALARM, 20),
    *stream_of("gw-2", YARD, Lane.TELEMETRY, 30),
]


def row_of(stored: CommittedRecord) -> dict[str, Any]:
    """A record's row of `events`, as far as the ledger looks."""
    headers = {name: value.decode() for name, value in stored.headers}
    place = position_of(stored.headers, stored.value)
    assert place is not None, "every record of the site is of a stream"
    kind = {STATEMENT_CONTENT_TYPE: EventOutcome.STATEMENT, "application/json": EventOutcome.OK}
    outcome = kind.get(headers["content-type"], EventOutcome.GAP)
    now = datetime.fromtimestamp(NOW_NS // 10**9, UTC)
    gap = decode_gap(stored.value) if outcome is EventOutcome.GAP else None
    return {
        "topic": stored.topic,
        "partition": stored.partition,
        "offset": stored.offset,
        "ingested": now,
        "recordedtime": datetime.fromisoformat(headers["ce_recordedtime"]),
        "gateway": place.gateway,
        "stream": place.stream,
        "first_sequence": place.first,
        "sequence": place.last,
        "lane": place.lane.value,
        "source": headers["ce_source"],
        "id": headers["ce_id"],
        "device": headers["device_id"],
        "outcome": outcome.value,
        "reason": gap and gap.reason.value,
        "detail": gap and gap.detail,
        "readings": [{"ordinal": n, "metric": "t", "value": 21.5} for n in range(2)] if outcome is EventOutcome.OK else [],
        "flow": "main",
        "run": "run-1",
        "batch": 0,
        "day": now.date(),
    }


def arrow(columns: tuple[Column, ...], rows: list[dict[str, Any]]) -> pa.Table:
    """Rows in the schema of the table; what they do not say is null."""
    of_readings = pa.list_(pa.struct([*_GROUP, ("time", _TIME)]))
    fields = [(column.name, _TYPES.get(column.type, of_readings)) for column in columns]
    return pa.Table.from_pylist(rows, pa.schema(fields))


# --- places


@dataclass(frozen=True)
class LedgerSite:
    """A tenant's topics, and tables."""

    settings: CloudSettings
    tables: Path

    def records(self) -> list[CommittedRecord]:
        """Return the records of all topics."""
        names = topics.raw_topics(self.settings.tenant)
        places = {(name, shard): None for name in names for shard in range(SHARDS)}
        return list(read_committed(KafkaClients(self.settings.kafka), places))

    def append(self, table: str, rows: list[dict[str, Any]]) -> None:
        """Commit rows to a table."""
        columns = EVENTS if table == "events" else READINGS
        write_deltalake(str(self.tables / table), arrow(columns, rows), mode="append", partition_by=["day"])

    def rows(self, table: str, stream: str, *sequences: int) -> list[dict[str, Any]]:
        """Return the rows of these sequences."""
        found = DeltaTable(str(self.tables / table)).to_pyarrow_table().to_pylist()
        return [row for row in found if row["stream"] == stream and row["sequence"] in sequences]

    def delete(self, table: str, stream: str, first: int, last: int, also: str = "true") -> None:
        """Delete the rows of these sequences, of which there is one at least."""
        where = f"stream = '{stream}' AND sequence BETWEEN {first} AND {last} AND {also}"
        assert DeltaTable(str(self.tables / table)).delete(where)["num_deleted_rows"] > 0

    def with_tables(self, folder: Path) -> "LedgerSite":
        """The same topics, and a copy of the tables."""
        return replace(self, tables=shutil.copytree(self.tables, folder / "tables"))

    def with_topics(self, change: Callable[[list[CommittedRecord]], list[CommittedRecord]]) -> "LedgerSite":
        """The same tables, and a copy of the topics: the same records with the same headers, but for the change."""
        copy = replace(self, settings=new_tenant(str(self.settings.kafka["bootstrap.servers"])))
        names = dict(zip(topics.raw_topics(self.settings.tenant), topics.raw_topics(copy.settings.tenant), strict=True))
        records = self.records()
        copy.produce([(names[each.topic], each.partition, each) for each in records], commit=False)  # nobody sees these
        copy.produce([(names[each.topic], each.partition, each) for each in change(records)])
        return copy

    def fill(self) -> None:
        """Into the tables what is in the topics, as the flow does."""
        rows = [row_of(each) for each in self.records()]
        self.append("events", rows)
        self.append("readings", [{**row, **reading} for row in rows for reading in row["readings"]])

    def produce(self, records: Iterable[tuple[str, int, Any]], *, commit: bool = True) -> None:
        """Records with `key`, `value`, `headers` into their partitions, as the bridge does."""
        producer = Producer({**self.settings.kafka, "transactional.id": f"ledger-{os.getpid()}-{next(_numbers)}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for topic, partition, each in records:
            producer.produce(topic, each.value, each.key, partition=partition, headers=each.headers)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def new_tenant(bootstrap: str) -> CloudSettings:
    """A tenant that has its topics."""
    kafka: dict[str, Any] = {"bootstrap.servers": bootstrap}
    settings = CloudSettings(tenant=f"ledger-{os.getpid()}-{next(_numbers)}", kafka=kafka, shards=SHARDS)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    return settings


def make_site(bootstrap: str, tables: Path, events: Iterable[Event] = EVERYTHING) -> LedgerSite:
    """Return a new tenant whose topics and tables have these events."""
    site = LedgerSite(new_tenant(bootstrap), tables)
    tenant = site.settings.tenant
    sent = [msgspec.structs.replace(each, tenant=tenant) for each in events]
    site.produce([(topics.of_lane(each.lane, tenant), SHARD_OF[each.gateway], record_of(each)) for each in sent])
    site.fill()
    return site
