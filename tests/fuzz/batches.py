"""Inputs that carry events: batches, gap records, replies, stored JSON documents; each through all its layers."""

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import zstandard

from fogline.amqp import wire
from fogline.dead_letter import DeadLetter, decode_dead_letter
from fogline.events.codec import (
    BATCH_CONTENT_TYPE,
    BATCH_ENCODING,
    Batch,
    Range,
    Replay,
    decode_beacon,
    decode_event,
    decode_range,
    read_batch,
)
from fogline.events.event import Lane
from fogline.events.gap import GAP_CONTENT_TYPE, Gap, GapReason, Lost, above, decode_gap, encode_gap, gap_event
from fogline.gateway import hello
from fogline.gateway.ledger import Counts, Statement, decode_statement
from fogline.message import Message
from fogline_cloud.commands.record import apply_reply
from fogline_cloud.kafka.records import record_of_object
from fogline_cloud.shard.admission import Admission
from fogline_cloud.shard.checkpoint import stream_entry
from fogline_lab.events import BEACON, STREAM, make_event
from fuzz.amqp_messages import message_form
from fuzz.amqp_values import long_symbol
from fuzz.control import MAX_KEPT_BYTES, commanded, plain, stored
from fuzz.forms import Decoder, Layer
from fuzz.json_forms import json_form

REPLY_STREAM = STREAM[:-2] + "bb"
"""A stream has one lane."""


# --- a batch, to the records that a shard makes of it


def _ranged(data: bytes) -> tuple[Range, Message]:
    message = wire.decode(data)
    return decode_range(message), message


def _clocked(found: tuple[Range, Message]) -> tuple[Range, Message]:
    commanded(decode_beacon(found[1]))
    return found


def _admitted(found: tuple[Range, Message]) -> tuple[Range, Message]:
    admission = Admission({})
    admission.admit(found[0])
    admission.wrote(found[0])
    for known in admission.committed(0):
        key, entry = stream_entry(known)
        mark = msgspec.json.encode(hello.Mark(known.stream, known.hwm, known.chain_sequence, known.chain))
        assert len(key) + len(entry) + len(mark) < MAX_KEPT_BYTES, "a stream takes too much memory"
        stored(known.hwm)
    return found


def _read(found: tuple[Range, Message]) -> tuple[Range, Batch]:
    return found[0], read_batch(*found)


def _landed(found: tuple[Range, Batch]) -> None:
    span, batch = found
    for each, data in zip(batch.objects, batch.data, strict=True):
        record_of_object(each, *batch.devices[each.source], data, span.chain)
    for event in batch.events():
        apply_reply(event, None, 0)
    above(batch.events(), span.first)


BATCH_LAYERS = (
    Layer("message", lambda data: (wire.decode(data), data)[1]),
    Layer("range", _ranged),
    Layer("clock", _clocked),
    Layer("admission", _admitted),
    Layer("events", _read),
    Layer("records", _landed),
)
PLACE: Mapping[str, object] = {
    "gateway": "gw-1",
    "stream": STREAM,
    "lane": "telemetry",
    "first": 1,
    "last": 1,
    "chain": "00" * 16,
    "epoch": "0" * 32,
    "boot": BEACON.boot_id,
    "boottime": BEACON.boottime_ms,
}
BATCH_PROPERTIES = {
    "content-type": long_symbol(BATCH_CONTENT_TYPE.encode()),
    "content-encoding": long_symbol(BATCH_ENCODING.encode()),
}


def batched(document: bytes, lane: str = "telemetry", stream: str = STREAM) -> bytes:
    """A document as the body of a batch."""
    body = zstandard.compress(document)
    form = message_form("batch", body=body, properties=BATCH_PROPERTIES, application={**PLACE, "lane": lane, "stream": stream})
    return form.render({})


def event_tree(**more: object) -> dict[str, Any]:
    """An event with everything that one may have."""
    given = {"ttd": 5, "expirytime": "2026-01-01T00:00:00Z", "properties": "a=b", "time": "2026-01-01T00:00:00Z", **more}
    event = make_event(1, **given)
    own = {"specversion": "1.0", "source": event.source, "datacontenttype": event.content_type, "data": {"n": 1}}
    names = [
        "id", "type", "subject", "time", "recordedtime", "gateway", "stream", "sequence", "lane", "timequality", "dedup",
        "adapter", "replayed", "ttd", "expirytime", "properties", "commandid", "commandstate", "correlationid", "status",
    ]  # fmt: skip
    found = {name: plain(getattr(event, name)) for name in names}
    return own | {name: value for name, value in found.items() if value is not None}


def _binary_event() -> dict[str, Any]:
    tree = event_tree()
    del tree["data"]
    return tree | {"data_base64": base64.b64encode(b"\x00\x01").decode()}


def _gap() -> Gap:
    return Gap(GapReason.REFUSED, 1, 1, "why", "ID", "lamp-1", "text/plain", "AAE=", Lost(STREAM, 1, 2))


def _gap_tree() -> dict[str, Any]:
    tree = event_tree(content_type=GAP_CONTENT_TYPE)
    return tree | {"data": plain(_gap())}


def _reply_tree() -> dict[str, Any]:
    reply = {"commandid": "CMD-1", "commandstate": "SUCCEEDED", "correlationid": "string:c", "status": 200}
    return event_tree(lane=Lane.REPLY, **reply) | {"stream": REPLY_STREAM}


def _in_batch(lane: str = "telemetry", stream: str = STREAM) -> Callable[[bytes], bytes]:
    return lambda document: batched(b"[" + document + b"]", lane, stream)


BATCH = Decoder(
    "batch",
    BATCH_LAYERS,
    [
        message_form(
            "batch message",
            body=zstandard.compress(b"[" + msgspec.json.encode(event_tree()) + b"]"),
            properties=BATCH_PROPERTIES,
            application=PLACE,
            fields_aim="range",
            properties_aim="range",
        ),
        json_form("event", event_tree(), "events", _in_batch()),
        json_form("event of bytes", _binary_event(), "events", _in_batch()),
        json_form("gap record", _gap_tree(), "events", _in_batch()),
        json_form("reply", _reply_tree(), "events", _in_batch("reply", REPLY_STREAM)),
    ],
)


# --- JSON documents of their own


def _again(body: bytes) -> None:
    replay = Replay(body)
    replay.encode(STREAM, 7)


def _gap_event(gap: Gap) -> None:
    gap_event(gap, tenant="acme", gateway="gw-1", stream=STREAM, lane=Lane.BULK, now_ns=time.time_ns())
    encode_gap(gap)


def _letter(letter: DeadLetter) -> None:
    assert isinstance(letter.reason, str)


DOCUMENTS = (
    Decoder("gap record", (Layer("gap", decode_gap), Layer("event", _gap_event)), [json_form("gap", plain(_gap()), "gap")]),
    Decoder(
        "stored event",
        (Layer("event", lambda body: (decode_event(body), body)[1]), Layer("replay", _again)),
        [json_form("event", event_tree(), "event"), json_form("gap", _gap_tree(), "event")],
    ),
    Decoder(
        "statement",
        (Layer("statement", decode_statement),),
        [
            json_form(
                "statement", plain(Statement(STREAM, "alarm", Counts(), closed=True)) | {"counts": {"sent": 1}}, "statement"
            )
        ],
    ),
    Decoder(
        "dead letter",
        (Layer("letter", decode_dead_letter), Layer("read", _letter)),
        [json_form("letter", plain(DeadLetter(reason="r", detail="d", sender="s", channel="c", body_base64="AAE=")), "letter")],
    ),
)
BATCHES = (BATCH, *DOCUMENTS)
