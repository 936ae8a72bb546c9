"""Bytes <-> values of everything that gateway and bridge say to each other, but hello (`fogline.hello`).

A message on a lane is a *batch*: the CloudEvents JSON batch format (CloudEvents 1.0 JSON, section 4), compressed with
zstd, its range of sequences readable from the application properties without the body.

The gateway stores each event as the JSON object that it will send (`encode_event`), so that a batch is made by
joining rows. A payload that calls itself JSON, is valid JSON and has no white space around it travels in `data` byte
for byte; any other travels in `data_base64`.
"""

import base64
import binascii
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
import zstandard
from msgspec import Raw

from fogline.address import is_identifier, shown
from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, parse_rfc3339
from fogline.gap import GAP_CONTENT_TYPE, Lost, decode_gap, encode_gap
from fogline.json_payload import travels_as_json
from fogline.message import Message, Property
from fogline.short_cache import cache_short

BATCH_CONTENT_TYPE = "application/cloudevents-batch+json"
BATCH_ENCODING = "zstd"
MAX_BATCH_BYTES = 256 * 1024
"""The most uncompressed bytes that a sender puts into one batch of more than one event."""
MAX_MESSAGE_BYTES = 1024 * 1024
"""The most bytes of one AMQP message, and of one event as JSON."""
MAX_SEQUENCE = 2**63 - 1
"""The largest number that a database holds, and so the largest sequence or time that a peer may name."""
MAX_BODY_BYTES = 2 * MAX_MESSAGE_BYTES
"""The most bytes that a batch may decompress to."""


class EventObject(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """An event as a CloudEvents JSON object. The order of the fields is the order on the wire."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str | None = None
    recordedtime: str
    datacontenttype: str
    gateway: str
    stream: str
    sequence: int
    lane: Lane
    timequality: TimeQuality
    dedup: str
    adapter: str
    replayed: bool = False
    ttd: int | None = None
    expirytime: str | None = None
    properties: str | None = None
    commandid: str | None = None
    commandstate: str | None = None
    correlationid: str | None = None
    status: int | None = None
    data: Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None


_encoder = msgspec.json.Encoder()
_wire_decoder = msgspec.json.Decoder(EventObject)
_batch_decoder = msgspec.json.Decoder(list[EventObject])


class _Own(threading.local):
    """Compressor and decompressor are one thread's alone: they keep their state between calls."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_own = _Own()


def encode_event(event: Event) -> bytes:
    """One event as a CloudEvents JSON object."""
    wire = object_of(event)
    if travels_as_json(event.content_type, event.data):
        wire.data = Raw(event.data)
    else:
        wire.data_base64 = base64.b64encode(event.data).decode()
    return _encoder.encode(wire)


def object_of(event: Event) -> EventObject:
    """An event without its data."""
    return EventObject(
        specversion="1.0",
        id=event.id,
        source=event.source,
        type=event.type,
        subject=event.subject,
        time=event.time,
        recordedtime=event.recordedtime,
        datacontenttype=event.content_type,
        gateway=event.gateway,
        stream=event.stream,
        sequence=event.sequence,
        lane=event.lane,
        timequality=event.timequality,
        dedup=event.dedup,
        adapter=event.adapter,
        replayed=event.replayed,
        ttd=event.ttd,
        expirytime=event.expirytime,
        properties=event.properties,
        commandid=event.commandid,
        commandstate=event.commandstate,
        correlationid=event.correlationid,
        status=event.status,
    )


def decode_event(body: bytes) -> Event:
    """The inverse of `encode_event`. Raises `Poison('malformed')`."""
    return Batch.read([_read(body)]).events()[0]


class Replay:
    """A stored event that goes to another place, marked `replayed`. Raises `Poison('malformed')`: it cannot be read.

    `stream`, `first` to `sequence`, `lane`: where it stood. `first` is below `sequence` only for a gap record.
    """

    def __init__(self, body: bytes) -> None:
        wire = self._wire = _read(body)
        self.stream, self.sequence, self.lane = wire.stream, wire.sequence, wire.lane
        _source(wire.source)
        data = _data(wire) if isinstance(wire.data, msgspec.UnsetType) or wire.datacontenttype == GAP_CONTENT_TYPE else b""
        self._gap = decode_gap(data) if wire.datacontenttype == GAP_CONTENT_TYPE else None
        self.first = self._gap.first if self._gap else self.sequence

    def encode(self, stream: str, sequence: int) -> bytes:
        """The event at its new place. A gap record says there of which former place it speaks."""
        wire, gap = self._wire, self._gap
        if gap is not None:
            lost = gap.lost or Lost(wire.stream, gap.first, gap.last)
            moved = msgspec.structs.replace(gap, first=sequence, last=sequence, lost=lost)
            wire.data, wire.data_base64 = msgspec.Raw(encode_gap(moved)), None
        wire.stream, wire.sequence, wire.replayed = stream, sequence, True
        return _encoder.encode(wire)


def _read(body: bytes) -> EventObject:
    try:
        return _wire_decoder.decode(body)
    except RecursionError:
        return _read_deep(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Poison("malformed", f"an event is not readable: {error}") from None


def _read_deep(body: bytes) -> EventObject:
    """An event whose `data` is nested too deep for the decoder, as gateways stored it before `MAX_JSON_DEPTH`.

    `data` is the last attribute, and no JSON string can hold its name with both quotation marks, so it is cut out
    unread. Encoded again, it travels as base64.
    """
    head, name, data = body.partition(b'"data":')
    if not name or not data.endswith(b"}"):
        raise Poison("malformed", "an event is nested too deep")
    try:
        wire = _wire_decoder.decode(head + b'"data_base64":""}')
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"an event is not readable: {error}") from None
    wire.data_base64 = base64.b64encode(data[:-1]).decode()
    return wire


class Batch(NamedTuple):
    """Events as they came: each as its JSON object and its data. `places`: tenant and device of each `source`.

    Whoever reads many attributes of many events reads them here: an `Event` of each costs as much as decoding it.
    """

    objects: Sequence[EventObject]
    data: Sequence[bytes]
    places: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, objects: Sequence[EventObject]) -> "Batch":
        """What many events have in common is checked once. Raises `Poison`."""
        for moment in {each.recordedtime for each in objects}:
            _check_time(moment)
        places = {source: _source(source) for source in {each.source for each in objects}}
        return cls(objects, list(map(_data, objects)), places)

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Batch":
        """The same of events."""
        places = {event.source: (event.tenant, event.device) for event in events}
        return cls(list(map(object_of, events)), [event.data for event in events], places)

    def events(self) -> list[Event]:
        """All of them."""
        return [event_of(each, *self.places[each.source], data) for each, data in zip(self.objects, self.data, strict=True)]


def event_of(wire: EventObject, tenant: str, device: str, data: bytes) -> Event:
    """The attributes in their order, without their names (see `Event`)."""
    return Event(
        wire.id,
        tenant,
        device,
        wire.type,
        wire.subject,
        wire.recordedtime,
        wire.datacontenttype,
        data,
        wire.gateway,
        wire.stream,
        wire.sequence,
        wire.lane,
        wire.timequality,
        wire.dedup,
        wire.adapter,
        wire.time,
        wire.replayed,
        wire.ttd,
        wire.expirytime,
        wire.properties,
        wire.commandid,
        wire.commandstate,
        wire.correlationid,
        wire.status,
    )


def _data(wire: EventObject) -> bytes:
    data = wire.data
    if isinstance(data, Raw):
        return bytes(data)
    if wire.data_base64 is None:
        raise Poison("malformed", f"event {shown(wire.id)} has no data")
    try:
        return base64.b64decode(wire.data_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Poison("malformed", f"data_base64 of event {shown(wire.id)} is not base64: {error}") from None


@lru_cache(maxsize=4096)
def _source(source: str) -> tuple[str, str]:
    match source.split("/"):
        case ["", tenant, "devices", device] if is_identifier(tenant) and is_identifier(device):
            return tenant, device
    raise Poison("bad-identifier", f"source {shown(source)} is not /tenant/devices/device")


@cache_short(maxsize=256)
def _check_time(text: str) -> None:
    """A gateway stores many events at one moment."""
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Poison("malformed", f"recordedtime is not readable: {error}") from None


SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A sequence, or 0 for none, as SQLite and Spark hold it: 64 bits, signed."""
Identifier = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._:-]{1,64}\Z")]
"""See `fogline.address`. The bridge keeps the identifiers of a peer, so their length has to be bounded."""


class Range(msgspec.Struct, frozen=True):
    """What a batch holds, readable without its body: sequences `first` to `last` of one stream.

    `chain` is the chain value of the last event, 16 bytes.
    """

    gateway: Identifier
    stream: Identifier
    lane: Lane
    first: SequenceNumber
    last: SequenceNumber
    chain: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]


class Beacon(msgspec.Struct, frozen=True):
    """The gateway's own clock as it sent: boot id and CLOCK_BOOTTIME in milliseconds. Deadlines are reckoned in it."""

    boot_id: Identifier
    boottime_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def encode_batch(span: Range, events: Sequence[bytes], beacon: Beacon) -> Message:
    """A batch of events, each as `encode_event` made it, in the order of their sequences."""
    properties: dict[str, Property] = {
        "gateway": span.gateway,
        "stream": span.stream,
        "lane": span.lane.value,
        "first": span.first,
        "last": span.last,
        "chain": span.chain.hex(),
        "boot": beacon.boot_id,
        "boottime": beacon.boottime_ms,
    }
    return Message(
        body=_own.compressor.compress(b"[" + b",".join(events) + b"]"),
        content_type=BATCH_CONTENT_TYPE,
        content_encoding=BATCH_ENCODING,
        durable=True,
        properties=properties,
    )


def decode_range(message: Message) -> Range:
    """The range of a batch, from its application properties. Raises `Poison('malformed')`."""
    if message.content_type != BATCH_CONTENT_TYPE or message.content_encoding != BATCH_ENCODING:
        kind = f"{message.content_type} ({message.content_encoding})"
        raise Poison("malformed", f"a lane takes {BATCH_CONTENT_TYPE} ({BATCH_ENCODING}), not {shown(kind)}")
    try:
        span = msgspec.convert({**message.properties, "chain": bytes.fromhex(str(message.properties.get("chain")))}, Range)
    except (msgspec.ValidationError, ValueError) as error:
        raise Poison("malformed", f"a batch's properties are not readable: {error}") from None
    if not 1 <= span.first <= span.last <= MAX_SEQUENCE:
        raise Poison("malformed", f"a batch cannot range from {span.first} to {span.last}")
    return span


def decode_beacon(message: Message) -> Beacon:
    """The gateway's clock as it sent a batch. Raises `Poison('malformed')`."""
    clock = {"boot_id": message.properties.get("boot"), "boottime_ms": message.properties.get("boottime")}
    try:
        return msgspec.convert(clock, Beacon)
    except msgspec.ValidationError as error:
        raise Poison("malformed", f"a batch carries the gateway's boot id and boottime: {error}") from None


def decode_batch(span: Range, message: Message) -> list[Event]:
    """The events of a batch, as `read_batch`."""
    return read_batch(span, message).events()


def read_batch(span: Range, message: Message) -> Batch:
    """What a batch holds, checked against its range. Raises `Poison` (`malformed`, `too-big`, `bad-identifier`)."""
    body = _decompress(message.body)
    try:
        wires = _batch_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        if not isinstance(error, RecursionError) or span.first != span.last:  # the gateway halves the batch
            raise Poison("malformed", f"a batch is not readable: {error}") from None
        wires = [_read_deep(body.removeprefix(b"[").removesuffix(b"]"))]
    stream, gateway, lane, expected = span.stream, span.gateway, span.lane, span.first
    for wire in wires:
        if wire.datacontenttype == GAP_CONTENT_TYPE:
            expected = _end_of_gap(wire, expected)
        if wire.sequence != expected or wire.stream != stream or wire.gateway != gateway or wire.lane is not lane:
            raise Poison("malformed", f"a batch of {span.first}..{span.last} holds an event of another place")
        expected += 1
    if expected != span.last + 1:
        raise Poison("malformed", f"a batch of {span.first}..{span.last} ends at {expected - 1}")
    return Batch.read(wires)


def _end_of_gap(wire: EventObject, first: int) -> int:
    """Where a gap record stands, which has to begin at `first`: at the last sequence that it stands for."""
    gap = decode_gap(_data(wire))
    if gap.first != first:
        raise Poison("malformed", f"a gap of {gap.first}..{gap.last} stands where {first} is next")
    return gap.last


def _decompress(body: bytes) -> bytes:
    """At most `MAX_BODY_BYTES` out of one zstd frame."""
    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise Poison("too-big", f"a batch must say its size, at most {MAX_BODY_BYTES} bytes uncompressed")
        return _own.decompressor.decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Poison("malformed", f"a batch is not zstd: {error}") from None
