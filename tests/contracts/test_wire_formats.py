"""Every format on a wire or on a disk, held against a file: a change of format is seen, and is on purpose.

To take a change on: `FOGLINE_WRITE_GOLDEN=1 pytest tests/contracts/test_wire_formats.py`, then read the difference.
"""

import base64
import json
import os
import sqlite3
from pathlib import Path

import msgspec
import pytest
import zstandard

from fogline.address import Control, HelloAddress, IngestAddress
from fogline.amqp import wire
from fogline.commands.cancel import CancelRequest, encode_cancel
from fogline.commands.command import Deadline, JournalQuery, decode_query, encode_command, encode_query
from fogline.commands.signature import read_signer
from fogline.dead_letter import dead_letter
from fogline.errors import Poison
from fogline.events.codec import chain_of, encode_event
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, encode_gap, gap_event
from fogline.events.identity import digest, semantic_id
from fogline.gateway import hello
from fogline.gateway.gateway_statistics import encode_statistics
from fogline.gateway.ledger import Counts, Statement, encode_statement
from fogline_cloud.flows.tables.schema import EVENTS, READINGS
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.records import position_of, record_of
from fogline_cloud.shard.admission import StreamState
from fogline_cloud.shard.checkpoint import (
    CommandKey,
    Layout,
    ShardOwner,
    entry_of,
    position_entry,
    stream_entry,
)
from fogline_edge.outbox.file.schema import open_database
from fogline_lab.commands import make_command
from fogline_lab.events import BEACON, NOW_NS, STREAM, make_batch, make_event
from shared.example_statistics import STATISTICS

GOLDEN = Path(__file__).parent / "golden"


def readable(value):
    """Bytes as text where they are text, as hex where not."""
    if isinstance(value, bytes):
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            return f"hex:{value.hex()}"
    if isinstance(value, list | tuple):
        return [readable(each) for each in value]
    if isinstance(value, dict):
        return {key: readable(each) for key, each in value.items()}
    return value


def record(event, chain=None):
    made = record_of(event, chain)
    return {"key": made.key, "value": made.value, "headers": made.headers}


def columns(table):
    return [f"`{column.name}` {column.type}" for column in table]


def gap():
    return Gap(GapReason.QUARANTINED, 42, 42, "amqp:decode-error", "ID", "lamp-1", "application/json", "e30=")


def batch():
    _, message = make_batch(1, 2)
    fields = msgspec.structs.asdict(message)
    fields["body"] = zstandard.decompress(message.body)
    return fields


def letter():
    error = Poison("bad-address", "no")
    return dead_letter(error, gateway="gw-1", adapter="mqtt", sender="c", channel="x/#", data=b"\x00", retransmission=None)


def outbox_schema(folder):
    connection = open_database(folder / "outbox.db", 10_000_000)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return [" ".join(sql.split()) for (sql,) in rows]


def signed_command():
    """A command as a bridge sends it, signed with a key that is no secret."""
    key = base64.b64encode(bytes(range(32))).decode()
    signed = read_signer("key-1", key, "here").sign(
        make_command(durable=True, correlation="string:1", deadline=Deadline("boot", 2**53))
    )
    return msgspec.structs.asdict(encode_command(signed))


FORMATS = {
    "command": signed_command,
    "addresses": lambda: [str(HelloAddress("acme")), str(IngestAddress("acme", 3)), str(Control("acme", "gw-1"))],
    "event-json": lambda: encode_event(make_event()),
    "event-base64": lambda: encode_event(make_event(data=b"\x00\xff", content_type="application/octet-stream", replayed=True)),
    "batch": batch,
    "hello": lambda: hello.encode_hello(
        hello.Hello(
            protocol=1,
            version="0.1.0",
            gateway="gw-1",
            beacon=BEACON,
            streams=[hello.OpenStream(STREAM, Lane.TELEMETRY)],
        )
    ),
    "welcome": lambda: hello.encode_hello(
        hello.Welcome(protocol=1, shard=3, shards=8, max_message_bytes=1048576, marks=[hello.Mark(STREAM, 7, 7, "ab")])
    ),
    "record": lambda: record(make_event(), b"\x01" * 16),
    "record-of-gap": lambda: record(
        gap_event(gap(), tenant="acme", gateway="gw-1", stream=STREAM, lane=Lane.TELEMETRY, now_ns=NOW_NS)
    ),
    "gap": lambda: encode_gap(gap()),
    "statistics": lambda: encode_statistics(STATISTICS),
    "statement": lambda: encode_statement(Statement(STREAM, "telemetry", Counts(acknowledged=3, stored=2, duplicate=1))),
    "dead-letter": lambda: (
        dead_letter(
            Poison("bad-address", "no"),
            gateway="gw-1",
            adapter="mqtt",
            sender="c",
            channel="x/#",
            data=b"\x00",
            retransmission=None,
        ).data
    ),
    "ids": lambda: [semantic_id(tier, "acme", "lamp-1", "telemetry", b"42") for tier in range(1, 6)],
    "digest": lambda: digest("telemetry", b"21.5").hex(),
    "chain": lambda: [chain_of(b"commit 1").hex(), chain_of(b"a chain, 16 long").hex()],
    "journal-query": lambda: msgspec.structs.asdict(
        encode_query(JournalQuery(id="c" * 32, tenant="acme", gateway="gw-1", digest=bytes(range(16))))
    ),
    "cancel": lambda: msgspec.structs.asdict(
        encode_cancel(
            CancelRequest(
                id="c" * 32,
                tenant="acme",
                gateway="gw-1",
                device="lamp-1",
                name="switch",
                digest=bytes(range(16)),
                deadline=Deadline("boot", 1234),
                correlation="string:my-1",
                why="cancelled by client acme/op-1",
                key_id="k1",
                signature=b"s" * 64,
            )
        )
    ),
    "checkpoint": lambda: [
        stream_entry(
            StreamState(gateway="gw-1", stream=STREAM, lane=Lane.ALARM, hwm=7, chain_sequence=7, chain="ab", landed=7)
        ),
        position_entry({"hono.telemetry.acme": 12}),
        entry_of(ShardOwner("bridge-1", "127.0.0.1:5672")),
        entry_of(Layout(8)),
        entry_of(CommandKey(bytes(range(32)))),
    ],
    "topics": lambda: [[topic.name, topic.partitions, topic.config] for topic in topics.all_topics("acme", 8)],
    "tables": lambda: {"events": columns(EVENTS), "readings": columns(READINGS)},
}


def hold(name, made):
    path = GOLDEN / f"{name}.json"
    text = json.dumps(readable(made), indent=1, ensure_ascii=True) + "\n"
    if os.environ.get("FOGLINE_WRITE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), f"{path} is missing: write it with FOGLINE_WRITE_GOLDEN=1"
    assert text == path.read_text(), f"the format {name} has changed: old readers and old data will not agree"


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_as_it_was(name):
    hold(name, FORMATS[name]())


def test_the_outboxs_schema_is_as_it_was(folder):
    hold("outbox-schema", outbox_schema(folder))


def test_a_batch_is_an_amqp_message_that_others_can_read():
    """The sections of AMQP 1.0 part 3: header, properties, application properties, one Data section."""
    _, message = make_batch(1, 2)
    assert [section for section in (b"\x00Sp", b"\x00Ss", b"\x00St", b"\x00Su") if section in wire.encode(message)] == [
        b"\x00Sp",
        b"\x00Ss",
        b"\x00St",
        b"\x00Su",
    ]


def test_an_old_sqlite_can_read_the_outbox():
    assert sqlite3.sqlite_version_info >= (3, 35), "RETURNING needs SQLite 3.35"


def test_every_header_of_a_record_is_text():
    """CloudEvents SDKs decode headers as UTF-8."""
    golden = json.loads((GOLDEN / "record.json").read_text())
    headers = [(key, value.encode("latin-1")) for key, value in golden["headers"]]
    assert position_of(headers, golden["value"].encode()).chain == b"\x01" * 16
    headers = record_of(make_event(), b"\xff" * 16).headers
    assert dict(headers)["fogline_chain"] == b"ff" * 16
    assert all(value.decode().isprintable() for _, value in headers)


def test_a_query_about_the_journal_is_read_as_it_was_sent():
    query = JournalQuery(id="c" * 32, tenant="acme", gateway="gw-1", digest=bytes(range(16)))
    assert decode_query(wire.decode(wire.encode(encode_query(query)))) == query
