"""Inputs from Kafka: event records, records of commands, checkpoints; read by bridge, flow, ledger and operators."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from fogline.amqp import wire
from fogline.commands.command import CommandState
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, Gap, GapReason, encode_gap
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Counts, Statement, encode_statement
from fogline_cloud.audit.chain import AuditLink, ChainCheck, append, follow
from fogline_cloud.audit.record import AuditRecord, decode_audit, encode_audit
from fogline_cloud.bridge.commands.replies import reply_message
from fogline_cloud.cli.administration.audit import row_of
from fogline_cloud.commands.record import CommandRecord, apply_reply, audit_of, decode_record, encode
from fogline_cloud.commands.registry import Registry
from fogline_cloud.flows.deployed.loaded_parsers import LoadedParsers
from fogline_cloud.flows.deployed.trial import TrialParsers
from fogline_cloud.flows.parsers import installed
from fogline_cloud.flows.sandbox.task_parsers import TaskParsers
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.worker.parse import Plan, decide_batch, read_batch
from fogline_cloud.flows.worker.parser_choice import chooser
from fogline_cloud.kafka.committed_records import CommittedRecord, with_values
from fogline_cloud.kafka.records import position_of, record_of
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.shard.admission import StreamState
from fogline_cloud.shard.checkpoint import Layout, RouteEntry, ShardOwner, read_entries
from fogline_cloud.shard.recovery import learn
from fogline_lab.events import NOW_NS, STREAM, make_event
from fuzz.control import plain
from fuzz.forms import MISSING, Choice, Decoder, Field, Form, Layer
from fuzz.json_forms import CHOICES, json_form
from fuzz.values import BYTES, INTEGERS, TEXTS

# --- event records

TWICE = object()
"""In place of a header's value: the header stands there twice, the second time without a value."""
HEADER_VALUES: list[Choice] = [
    *TEXTS.items(),
    *BYTES.items(),
    *((f"{kind} as text", str(value).encode()) for kind, value in INTEGERS.items()),
    ("type/null", None),
    ("presence/missing", MISSING),
    ("presence/twice", TWICE),
    ("value/blank number", b" 12 "),
    ("value/plus", b"+5"),
    ("value/other lane", b"alarm"),
    ("value/reply lane", b"reply"),
]
BODIES: list[Choice] = [
    ("type/null", None),
    *((f"bytes {kind}", value) for kind, value in {**TEXTS, **BYTES}.items()),
    *((f"json {kind}", value) for kind, value in CHOICES),
    ("depth/2000 maps in cbor", b"\xa1\x61a" * 2000 + b"\x00"),
    ("depth/2000 lists in cbor", b"\x81" * 2000 + b"\x00"),
    ("depth/2000 tags in cbor", b"\xc1" * 2000 + b"\x00"),
    ("length/huge list in cbor", b"\x9b" + b"\xff" * 8),
    ("length/huge text in cbor", b"\x7b" + b"\xff" * 8),
    ("length/open list in cbor", b"\x9f" * 2000),
    *((f"type/cbor item {each:#04x}", bytes((each,)) + bytes(9)) for each in range(256)),
]


def _record(name: str, content_type: str, value: bytes, **more: object) -> Form:
    event = make_event(1, content_type=content_type, data=value, **more)
    made = record_of(event, bytes(16))
    titles = [title for title, _ in made.headers]

    def render(replaced: Mapping[str, Any]) -> tuple[list[tuple[str, bytes | None]], bytes | None]:
        headers: list[tuple[str, bytes | None]] = []
        for title, own in made.headers:
            found = replaced.get(title, own)
            if found is TWICE:
                headers += [(title, own), (title, None)]
            elif found is not MISSING:
                headers.append((title, found))
        return headers, replaced.get("value", made.value)

    return Form(name, [*(Field(each, "record", HEADER_VALUES) for each in titles), Field("value", "record", BODIES)], render)


OFTEN = {"ttd": 5, "expirytime": "2026-01-01T00:00:00Z", "properties": "a=b", "time": "2026-01-01T00:00:00Z"}
REPLIED = {"commandid": "C", "commandstate": "SUCCEEDED", "correlationid": "string:c", "status": 200, "lane": Lane.REPLY}
GAP = encode_gap(Gap(GapReason.DROPPED, 1, 1, "full"))
LETTER = b'{"reason":"r","detail":"d","sender":"s","channel":"c","body_base64":""}'
STATEMENT = encode_statement(Statement(STREAM, "telemetry", Counts(stored=1)))
RECORDS: Sequence[Form] = [
    _record("json event", "application/json", b'{"t": 21.5}', **OFTEN),
    _record("cbor event", "application/cbor", b"\xa1\x61t\x01"),
    _record("senml event", "application/senml+json", b'[{"n":"t","v":1}]'),
    _record("senml cbor event", "application/senml+cbor", b"\x81\xa2\x00\x61t\x02\x01"),
    _record("advertisement", "application/vnd.fogline-ble-advertisement", b"\x02\x01\x06\x05\x16\xd2\xfc\x40\x01"),
    _record("gatt value", "application/vnd.fogline-ble-gatt", b"\x01\x02", subject="00002a6e-0000-1000-8000-00805f9b34fb"),
    _record("number", "text/plain", b"21.5"),
    _record("gap", GAP_CONTENT_TYPE, GAP),
    _record("statement", STATEMENT_CONTENT_TYPE, STATEMENT),
    _record("dead letter", "application/vnd.fogline-dead+json", LETTER),
    _record("reply event", "application/json", b"{}", **REPLIED),
    _record("client's event", "application/json", b"{}", gateway="", stream=""),
]  # fmt: skip
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _learnt(place: Any) -> None:
    if place is not None:
        msgspec.json.encode(learn({}, place))


class Flow:
    """The flow's worker, as it is called for one record at a time. It may refuse nothing: each record is a row."""

    def __init__(self) -> None:
        self._plan = Plan(tenant="acme", limit_s=60, parsers={})
        self._limit = TimeLimit(60)

    def __call__(self, given: tuple[list[tuple[str, bytes | None]], bytes | None]) -> None:
        headers, value = given
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(["topic"]),
                pa.array([3], pa.int32()),
                pa.array([7], pa.int64()),
                pa.array([NOW_NS // 1000], pa.timestamp("us", tz="UTC")),
                pa.array([value], pa.binary()),
                pa.array([[{"key": name, "value": each} for name, each in headers]], _HEADERS),
            ],
            names=["topic", "partition", "offset", "ingested", "value", "headers"],
        )
        with self._limit as limit:  # each record is asked for anew: nothing is remembered of a slow parser
            loaded = LoadedParsers(dict(installed()))
            parsers = TrialParsers(TaskParsers(loaded.parsers, limit, 1 << 30, ()), loaded)
            read = read_batch(batch, "acme", chooser({}))
            rows = decide_batch(batch, self._plan, MicroBatch("main", "uuid", 4), read, parsers)
        assert rows.num_rows == 1
        (outcome,) = rows.column("outcome").to_pylist()
        (reason,) = rows.column("reason").to_pylist()
        (detail,) = rows.column("detail").to_pylist()
        assert reason != "parser-error", f"a parser of ours raised: {detail[-300:]}"
        assert outcome


def _counted(given: tuple[list[tuple[str, bytes | None]], bytes | None]) -> None:
    headers, value = given
    reader = EvidenceReader("t", {})
    reader.take_record(CommittedRecord("topic", 0, 7, b"lamp-1", value or b"", with_values(headers)))
    reader.finish()


EVENTS = (
    Decoder(
        "kafka record at a bridge",
        (Layer("record", lambda given: position_of(with_values(given[0]), given[1] or b"")), Layer("stream", _learnt)),
        RECORDS,
    ),
    Decoder("kafka record in the flow", (Layer("record", Flow()),), RECORDS),
    Decoder("kafka record in the ledger", (Layer("record", _counted),), RECORDS),
)

# --- commands and checkpoints

COMMAND = CommandRecord(
    id="CMD-1", tenant="acme", gateway="gw-1", device="lamp-1", name="switch", state=CommandState.IN_DOUBT,
    operator="client desk",
    accepted_ms=1, expires_ms=2, changed_ms=1, digest="00", correlation="string:c", reply_to="desk", content_type="text/plain",
    data_base64="AAE=", durable=True, idempotent=True, provisional=True, status=504, reply_type="text/plain",
    reply_base64="AAE=", why="w", reply_delivered=True,
)  # fmt: skip


def _known(record: CommandRecord) -> CommandRecord:
    registry = Registry()
    registry.put(record)
    registry.change(msgspec.structs.replace(record, state=CommandState.SUCCEEDED, provisional=False))
    registry.open_for(record.gateway)
    encode(record)
    encode_audit(audit_of(record))
    return record


def _answered(record: CommandRecord) -> None:
    assert isinstance(record.data, bytes)
    wire.encode(reply_message(record))


def _replied(document: bytes) -> CommandRecord | None:
    """A gateway's reply to a command that is known, as it goes on to the operator."""
    from fogline.events.codec import decode_event

    asked = msgspec.structs.replace(COMMAND, state=CommandState.DISPATCHED, reply_delivered=False, provisional=False)
    return apply_reply(decode_event(document), asked, 1)


REPLY_TREE = {
    "specversion": "1.0", "id": "I", "source": "/acme/devices/lamp-1", "type": "command", "subject": "command/switch",
    "recordedtime": "2026-01-01T00:00:00Z", "datacontenttype": "text/plain", "gateway": "gw-1", "stream": STREAM,
    "sequence": 1, "lane": "reply", "timequality": "synced", "dedup": "strong", "adapter": "mqtt", "commandid": "CMD-1",
    "commandstate": "SUCCEEDED", "correlationid": "string:c", "status": 200, "data_base64": base64.b64encode(b"ok").decode(),
}  # fmt: skip
ENTRIES: Mapping[bytes, object] = {
    b"layout": Layout(4),
    b"owner": ShardOwner("b-1", "127.0.0.1:1"),
    b"position": {"topic": 7},
    b"route/lamp-1": RouteEntry("gw-1", 1),
    b"stream/gw-1/" + STREAM.encode(): StreamState(gateway="gw-1", stream=STREAM, lane=Lane.ALARM, hwm=1),
}
KEYS: list[Choice] = [
    *((kind, value) for kind, value in TEXTS.items() if len(value) < 300),
    *((f"route {kind}", b"route/" + value) for kind, value in TEXTS.items() if len(value) < 300),
    *((f"stream {kind}", b"stream/" + value) for kind, value in TEXTS.items() if len(value) < 300),
]


def _entry(key: bytes, value: object) -> Form:
    inner = json_form(key.decode(), plain(value), "entries")
    fields = [*inner.fields, Field("key", "entries", KEYS)]
    return Form(inner.name, fields, lambda replaced: [(replaced.get("key", key), inner.render(replaced))])


COMMANDS = (
    Decoder(
        "command's record",
        (Layer("record", decode_record), Layer("registry", _known), Layer("answer", _answered)),
        [json_form("record", plain(COMMAND) | {"told": True}, "record")],
    ),
    Decoder(
        "reply to an operator",
        (
            Layer("reply", _replied),
            Layer("answer", lambda record: None if record is None else _answered(record)),
        ),
        [json_form("reply", REPLY_TREE, "reply")],
    ),
    Decoder("checkpoint", (Layer("entries", read_entries),), [_entry(key, value) for key, value in ENTRIES.items()]),
)
AUDIT = AuditRecord(
    time_ms=1, who="alice", decision="CONNECTED", why="w", device="lamp-1", gateway="gw-1", command="C", name="switch",
    status=200, number=1, previous="00",
)  # fmt: skip


def _shown(record: AuditRecord) -> AuditRecord:
    assert all(each.isprintable() for each in row_of(record)), "the terminal would be disturbed"
    return record


def _chained(record: AuditRecord) -> None:
    body = encode_audit(record)
    check = ChainCheck("audit[0]", [AuditLink(5, "00")])
    check.add(0, body)
    check.finish()
    append(follow(AuditLink(), body), AUDIT)


AUDITS = (
    Decoder(
        "audit record",
        (Layer("record", decode_audit), Layer("line", _shown), Layer("chain", _chained)),
        [json_form("audit", plain(AUDIT), "record")],
    ),
)
STORED = (*EVENTS, *COMMANDS, *AUDITS)
