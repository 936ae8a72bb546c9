"""Someone damages Kafka or the tables: `fogline ledger verify` says what, by gateway, stream and range, in one line each.

One tenant's true topics and tables are made once. Damage to a table is done to a copy of the tables, damage to a topic to
a copy of the topics, which belongs to a tenant of its own.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from deltalake import DeltaTable, write_deltalake

from fogline.events.event import Event, Lane
from fogline.events.gap import Gap, GapReason, gap_event
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Counts, Statement, encode_statement
from fogline_cloud.flows.tables.schema import EVENTS, READINGS, Column, EventOutcome
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.kafka.records import position_of, record_of
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.events import NOW_NS, make_event
from sampling import a_few

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


def stream_of(gateway: str, stream: str, lane: Lane, events: int, gap: tuple[int, int] | None = None) -> list[Event]:
    """A stream as its gateway has sent it, with its last word at the end. `gap`: dropped, a record stands for them."""
    place = {"gateway": gateway, "stream": stream, "lane": lane}
    sent = [make_event(sequence, id=f"{stream}.{sequence}", **place) for sequence in range(1, events + 1)]
    if gap is not None:
        dropped = Gap(GapReason.DROPPED, *gap, "the outbox was full")
        record = gap_event(dropped, tenant="acme", gateway=gateway, stream=stream, lane=lane, now_ns=NOW_NS)
        sent[gap[0] - 1 : gap[1]] = [record]
    word = encode_statement(Statement(stream, lane.value, Counts(acknowledged=events + 2, duplicate=2, stored=events)))
    content = {"content_type": STATEMENT_CONTENT_TYPE, "device": gateway, "type": "ledger", "data": word}
    return [*sent, make_event(events + 1, id=f"{stream}.{events + 1}", **place, **content)]


SHARD_OF = {"gw-1": 0, "gw-2": 1}
EVERYTHING = [
    *stream_of("gw-1", AIR, Lane.TELEMETRY, 60, gap=(41, 43)),
    *stream_of("gw-1", ALARMS, Lane.ALARM, 20),
    *stream_of("gw-2", YARD, Lane.TELEMETRY, 30),
]


def row_of(stored: CommittedRecord) -> dict[str, object]:
    """A record's row of `events`, as far as the ledger looks."""
    headers = {name: value.decode() for name, value in stored.headers}
    place = position_of(stored.headers, stored.value)
    kind = {STATEMENT_CONTENT_TYPE: EventOutcome.STATEMENT, "application/json": EventOutcome.OK}
    outcome = kind.get(headers["content-type"], EventOutcome.GAP)
    now = datetime.fromtimestamp(NOW_NS // 10**9, UTC)
    return {
        "topic": stored.topic,
        "partition": stored.partition,
        "offset": stored.offset,
        "ingested": now,
        "gateway": place.gateway,
        "stream": place.stream,
        "first_sequence": place.first,
        "sequence": place.last,
        "lane": place.lane.value,
        "source": headers["ce_source"],
        "id": headers["ce_id"],
        "device": headers["device_id"],
        "outcome": outcome.value,
        "readings": [{"ordinal": n, "metric": "t", "value": 21.5} for n in range(2)] if outcome is EventOutcome.OK else [],
        "flow": "main",
        "run": "run-1",
        "batch": 0,
        "day": now.date(),
    }


def arrow(columns: tuple[Column, ...], rows: list[dict[str, object]]) -> pa.Table:
    """Rows in the schema of the table; what they do not say is null."""
    of_readings = pa.list_(pa.struct([*_GROUP, ("time", _TIME)]))
    fields = [(column.name, _TYPES.get(column.type, of_readings)) for column in columns]
    return pa.Table.from_pylist(rows, pa.schema(fields))


# --- places


@dataclass(frozen=True)
class Site:
    """A tenant's topics, and tables."""

    settings: CloudSettings
    tables: Path

    def records(self) -> list[CommittedRecord]:
        names = topics.raw_topics(self.settings.tenant)
        places = {(name, shard): None for name in names for shard in range(SHARDS)}
        return list(read_committed(KafkaClients(self.settings.kafka), places))

    def append(self, table: str, rows: list[dict[str, object]]) -> None:
        columns = EVENTS if table == "events" else READINGS
        write_deltalake(str(self.tables / table), arrow(columns, rows), mode="append", partition_by=["day"])

    def rows(self, table: str, stream: str, *sequences: int) -> list[dict[str, object]]:
        found = DeltaTable(str(self.tables / table)).to_pyarrow_table().to_pylist()
        return [row for row in found if row["stream"] == stream and row["sequence"] in sequences]

    def delete(self, table: str, stream: str, first: int, last: int, also: str = "true") -> None:
        where = f"stream = '{stream}' AND sequence BETWEEN {first} AND {last} AND {also}"
        assert DeltaTable(str(self.tables / table)).delete(where)["num_deleted_rows"] > 0

    def with_tables(self, folder: Path) -> "Site":
        """The same topics, and a copy of the tables."""
        return replace(self, tables=shutil.copytree(self.tables, folder / "tables"))

    def with_topics(self, change: Callable[[list[CommittedRecord]], list[CommittedRecord]]) -> "Site":
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

    def produce(self, records, *, commit: bool = True) -> None:
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
    kafka = {"bootstrap.servers": bootstrap}
    settings = CloudSettings(tenant=f"ledger-{os.getpid()}-{next(_numbers)}", kafka=kafka, shards=SHARDS)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    return settings


@pytest.fixture(scope="module")
def original(kafka, tmp_path_factory) -> Site:
    site = Site(new_tenant(kafka.bootstrap), tmp_path_factory.mktemp("ledger") / "tables")
    tenant = site.settings.tenant
    site.produce([(topics.of_lane(each.lane, tenant), SHARD_OF[each.gateway], record_of(each)) for each in EVERYTHING])
    site.fill()
    return site


# --- what the ledger says


@dataclass(frozen=True)
class Said:
    """Facts on which both forms of the command agree: exit status, findings by kind, gateway, lane, stream and range."""

    status: int
    lines: list[str]


def verify(site: Site, folder: Path) -> Said:
    """Run the real command in both forms; the JSON must say the same as the text."""
    config = folder / "cloud.toml"
    config.write_text(
        f'tenant = "{site.settings.tenant}"\nshards = {SHARDS}\n'
        f'[kafka]\n"bootstrap.servers" = "{site.settings.kafka["bootstrap.servers"]}"\n[flow]\ntables = "{site.tables}"\n'
    )
    fogline = str(Path(sys.executable).with_name("fogline"))
    command = [fogline, "ledger", "verify", "--config", str(config), "--silent", "3650d"]  # the events are old
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ, "COLUMNS": "80"}}
    with subprocess.Popen(command, **pipes) as text, subprocess.Popen([*command, "--json"], **pipes) as told:
        (out, err), (as_json, _) = text.communicate(timeout=120), told.communicate(timeout=120)
    assert out, err
    assert text.returncode == told.returncode
    lines = out.splitlines()
    end = next(number for number, line in enumerate(lines) if line.startswith("the ledger "))
    *shown, read, verdict = lines[: end + 1]
    assert read.startswith("read: tables ")
    found = json.loads(as_json)
    findings = [f"{each['kind']} {each['text']}" for each in found["findings"]]
    explained = [
        f"explained {each['gateway']} {each['lane']} {each['stream']}: "
        f"{loss['first']}..{loss['last']}: {loss['reason']}: {loss['detail']}"
        for each in found["streams"]
        for loss in each["losses"]
    ]
    said = [line for line in shown[len(found["streams"]) + 1 :] if not line.startswith("read again: ")]
    assert said == explained + findings
    assert found["balances"] == (not findings) == (verdict == "the ledger balances")
    for each in found["findings"]:
        ranges = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in each["spans"])
        assert f"{each['gateway']} " in each["text"]
        assert f" {each['stream']}: {ranges}: " in each["text"]
    return Said(text.returncode, [line.rpartition(": ")[0] for line in findings])


def test_ledger_of_untouched_copies_balances(original, folder):
    assert verify(original, folder) == Said(0, [])


@pytest.mark.slow
def test_the_ledger_of_an_untouched_copy_balances(original, folder):
    assert verify(original.with_topics(lambda records: records), folder) == Said(0, [])


# --- damage to the tables


def row_is_deleted(site):
    for table in ("events", "readings"):
        site.delete(table, AIR, 17, 17)


def row_is_deleted_from_events_only(site):
    site.delete("events", YARD, 5, 7)


def row_is_doubled(site):
    site.append("events", site.rows("events", ALARMS, 9))


def row_of_a_gap_is_deleted(site):
    site.delete("events", AIR, 43, 43)


def rows_of_nobody(site):
    """More than the gateway ever sent, and a stream that Kafka does not know."""
    (row,) = site.rows("events", YARD, 30)
    beyond = [{**row, "id": f"{YARD}.{n}", "first_sequence": n, "sequence": n, "readings": []} for n in (32, 33)]
    nobodys = {"id": f"{NOBODYS}.1", "gateway": "gw-9", "stream": NOBODYS, "first_sequence": 1, "sequence": 1}
    site.append("events", [*beyond, {**beyond[0], **nobodys}])


def readings_are_damaged(site):
    """One is deleted, one doubled, one doubled in another's place, and one belongs to nothing."""
    site.delete("readings", AIR, 3, 3, "ordinal = 1")
    site.append("readings", site.rows("readings", AIR, 8)[:1])
    site.delete("readings", AIR, 12, 12, "ordinal = 1")
    first, *_ = site.rows("readings", AIR, 12)
    site.append("readings", [first, {**first, "gateway": "gw-9", "stream": NOBODYS, "sequence": 4}])


DAMAGED_TABLES = {
    row_is_deleted: [f"table-missing gw-1 telemetry {AIR}: 17"],
    row_is_deleted_from_events_only: [f"table-missing gw-2 telemetry {YARD}: 5..7"],
    row_is_doubled: [f"table-double gw-1 alarm {ALARMS}: 9"],
    row_of_a_gap_is_deleted: [f"table-missing gw-1 telemetry {AIR}: 41..43"],
    rows_of_nobody: [f"phantom gw-2 telemetry {YARD}: 32..33", f"phantom gw-9 telemetry {NOBODYS}: 1"],
    readings_are_damaged: [
        f"readings-missing gw-1 telemetry {AIR}: 3, 12",
        f"readings-double gw-1 telemetry {AIR}: 8, 12",
        f"readings-phantom gw-9 unknown {NOBODYS}: 4",
    ],
}


@pytest.mark.parametrize(
    ("damage", "lines"),
    a_few(DAMAGED_TABLES.items(), (row_is_deleted, DAMAGED_TABLES[row_is_deleted])),
    ids=[each.__name__ for each in DAMAGED_TABLES],
)
def test_the_ledger_names_damage_to_the_tables(original, folder, damage, lines):
    site = original.with_tables(folder)
    assert verify(site, folder) == Said(0, [])  # its marks come before the damage
    damage(site)
    assert verify(site, folder) == Said(1, DAMAGED_TABLES[damage])


# --- damage to a topic


def place(record: CommittedRecord) -> tuple[str, int]:
    found = position_of(record.headers, record.value)
    return found.stream, found.last


def range_is_missing(records):
    return [each for each in records if place(each) not in {(AIR, n) for n in range(11, 21)}]


def beginning_is_missing(records):
    return [each for each in records if place(each) not in {(ALARMS, n) for n in range(1, 6)}]


def end_is_missing(records):
    return [each for each in records if place(each) not in {(YARD, 30), (YARD, 31)}]


def record_is_doubled(records):
    return [each for each in records for _ in range(2 if place(each) == (ALARMS, 7) else 1)]


def phantom_at_a_number_that_was_given(records):
    """Someone else's payload, at the place of an event that the gateway did send."""
    (model,) = [each for each in records if place(each) == (YARD, 12)]
    return [*records, msgspec.structs.replace(model, value=b'{"temperature": 99}')]


DAMAGED_TOPIC = {
    range_is_missing: [f"phantom gw-1 telemetry {AIR}: 11..20"],
    beginning_is_missing: [f"phantom gw-1 alarm {ALARMS}: 1..5"],
    end_is_missing: [f"phantom gw-2 telemetry {YARD}: 30..31"],
    record_is_doubled: [f"kafka-double gw-1 alarm {ALARMS}: 7"],
    phantom_at_a_number_that_was_given: [f"kafka-double gw-2 telemetry {YARD}: 12"],
}


@pytest.mark.parametrize(
    ("damage", "lines"),
    a_few(DAMAGED_TOPIC.items(), (record_is_doubled, DAMAGED_TOPIC[record_is_doubled])),
    ids=[each.__name__ for each in DAMAGED_TOPIC],
)
def test_the_ledger_names_damage_to_a_topic(original, folder, damage, lines):
    assert verify(original.with_topics(damage), folder) == Said(1, lines)


def test_ledger_knows_records_deleted_by_retention(original, folder):
    """Rows in the table are no phantoms, and missing rows are lost."""
    site = replace(original.with_topics(lambda records: records), tables=folder / "tables")
    site.fill()
    (kept,) = site.rows("events", AIR, 31)
    admin = KafkaClients(site.settings.kafka).admin()
    for future in admin.delete_records([TopicPartition(kept["topic"], kept["partition"], kept["offset"])]).values():
        future.result(60)
    assert verify(site, folder) == Said(0, [])
    site.delete("events", AIR, 4, 4)
    site.delete("readings", AIR, 4, 4)
    assert verify(site, folder) == Said(1, [f"lost gw-1 telemetry {AIR}: 4"])


def test_ledger_names_sequences_missing_from_both(original, folder):
    site = original.with_tables(folder)
    site.delete("events", AIR, 11, 20)
    site.delete("readings", AIR, 11, 20)
    assert verify(site.with_topics(range_is_missing), folder) == Said(1, [f"lost gw-1 telemetry {AIR}: 11..20"])
