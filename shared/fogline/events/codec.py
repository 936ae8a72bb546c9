"""Encodes and decodes events and batches, the messages from a gateway to a bridge (hello: see `fogline.gateway.hello`).

A *batch* is an array in the CloudEvents JSON batch format (CloudEvents 1.0 JSON event format, section 4), compressed with zstd.
Its application properties name its sequences. The gateway stores each event as the JSON object that it will send, and joins
stored rows. A payload with a JSON content type that is valid JSON without white space around it travels unchanged in `data`;
any other travels in `data_base64` (section 3.1).
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
from fogline.documents.document_error import explained
from fogline.documents.json_payload import travels_as_json
from fogline.errors import Poison
from fogline.events.event import Event, Lane, TimeQuality, parse_rfc3339
from fogline.events.gap import GAP_CONTENT_TYPE, Lost, decode_gap, encode_gap
from fogline.message import Message, Property
from fogline.short_cache import cache_short

BATCH_CONTENT_TYPE = "application/cloudevents-batch+json"
BATCH_ENCODING = "zstd"
MAX_BATCH_BYTES = 256 * 1024
"""Limit of the uncompressed bytes of a batch of more than one event."""
MAX_MESSAGE_BYTES = 1024 * 1024
"""Limit of the bytes of one AMQP message, and of one event as JSON."""
MAX_SEQUENCE = 2**63 - 1
"""Limit of a sequence: SQLite and Spark hold signed 64-bit integers."""
MAX_BODY_BYTES = 2 * MAX_MESSAGE_BYTES
"""Limit of the uncompressed bytes of a received batch."""


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
    dataref: str | None = None
    data: Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None


_encoder = msgspec.json.Encoder()
_wire_decoder = msgspec.json.Decoder(EventObject)
_batch_decoder = msgspec.json.Decoder(list[EventObject])


class _Zstd(threading.local):
    """A compressor and a decompressor for each thread: they keep state between calls."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def encode_event(event: Event) -> bytes:
    """Return an event as a CloudEvents JSON object."""
    wire = object_of(event)
    if travels_as_json(event.content_type, event.data):
        wire.data = Raw(event.data)
    else:
        wire.data_base64 = base64.b64encode(event.data).decode()
    return _encoder.encode(wire)


def object_of(event: Event) -> EventObject:
    """Return an event as a JSON object, without its data."""
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
        dataref=event.dataref,
    )


def decode_event(body: bytes) -> Event:
    """Return the event of a JSON object. Raises `Poison` (`malformed`, `bad-identifier`)."""
    return Batch.read([_read(body)]).events()[0]


class Replay:
    """A stored event that moves to another stream, marked `replayed`. Raises `Poison` (`malformed`, `bad-identifier`)."""

    def __init__(self, body: bytes) -> None:
        wire = self._wire = _read(body)
        self.stream, self.sequence, self.lane = wire.stream, wire.sequence, wire.lane
        _source(wire.source)
        data = _data(wire) if isinstance(wire.data, msgspec.UnsetType) or wire.datacontenttype == GAP_CONTENT_TYPE else b""
        self._gap = decode_gap(data) if wire.datacontenttype == GAP_CONTENT_TYPE else None
        self.first = self._gap.first if self._gap else self.sequence

    def encode(self, stream: str, sequence: int) -> bytes:
        """Return the event at its new position. A gap record keeps its former position in `lost`."""
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
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"an event is not readable: {explained(error, EventObject)}") from None


class Batch(NamedTuple):
    """The events of a batch (an `Event` costs as much to build as to decode). `devices`: tenant and device of each `source`."""

    objects: Sequence[EventObject]
    data: Sequence[bytes]
    devices: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, objects: Sequence[EventObject]) -> "Batch":
        """Return a batch of JSON objects. Checks each time and source once. Raises `Poison` (`malformed`, `bad-identifier`)."""
        for moment in {each.recordedtime for each in objects}:
            _check_time(moment)
        devices = {source: _source(source) for source in {each.source for each in objects}}
        return cls(objects, list(map(_data, objects)), devices)

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Batch":
        """Return a batch of events."""
        devices = {event.source: (event.tenant, event.device) for event in events}
        return cls(list(map(object_of, events)), [event.data for event in events], devices)

    def events(self) -> list[Event]:
        """Return every event."""
        return [event_of(each, *self.devices[each.source], data) for each, data in zip(self.objects, self.data, strict=True)]


def event_of(wire: EventObject, tenant: str, device: str, data: bytes) -> Event:
    """Return an event. Arguments are positional for speed (see `Event`)."""
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
        wire.dataref,
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
    """Check an RFC 3339 time. Cached, because a gateway stores many events at one moment."""
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Poison("malformed", f"recordedtime is not readable: {error}") from None


SequenceNumber = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A sequence, or 0 for none; a signed 64-bit integer in SQLite and Spark."""
Identifier = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._:-]{1,64}\Z")]
"""See `fogline.address`. The bridge keeps a peer's identifiers in memory, so their length is limited."""


Epoch = Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[!-~]*\Z")]
"""Names one hello of a gateway. The batches that follow carry it. "" for a gateway that names none."""


class Range(msgspec.Struct, frozen=True):
    """Sequences `first` to `last` of one stream, from a batch's application properties."""

    gateway: Identifier
    stream: Identifier
    lane: Lane
    first: SequenceNumber
    last: SequenceNumber
    chain: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]  # of the last event, see `chain_of`
    epoch: Epoch = ""


class Beacon(msgspec.Struct, frozen=True):
    """The gateway's clock since boot at the time of sending: boot id and CLOCK_BOOTTIME in milliseconds. Deadlines use it."""

    boot_id: Identifier
    boottime_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def chain_of(commit_id: bytes) -> bytes:
    """Return the chain value of an event: the id of the commit that stored it, in 16 bytes.

    Copies of one outbox store with other ids from the moment of the copy, so equal values at one sequence mean an equal past.
    """
    return commit_id.ljust(16, b"\0")


def encode_batch(span: Range, events: Sequence[bytes], beacon: Beacon) -> Message:
    """Return the message of a batch. `events`: JSON objects of `encode_event`, in order of sequence."""
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
    if span.epoch:
        properties["epoch"] = span.epoch
    return Message(
        body=_zstd.compressor.compress(b"[" + b",".join(events) + b"]"),
        content_type=BATCH_CONTENT_TYPE,
        content_encoding=BATCH_ENCODING,
        durable=True,
        properties=properties,
    )


def decode_range(message: Message) -> Range:
    """Return the range of a batch, from its application properties. Raises `Poison('malformed')`."""
    if message.content_type != BATCH_CONTENT_TYPE or message.content_encoding != BATCH_ENCODING:
        kind = f"{message.content_type} ({message.content_encoding})"
        raise Poison("malformed", f"a lane takes {BATCH_CONTENT_TYPE} ({BATCH_ENCODING}), not {shown(kind)}")
    try:
        span = msgspec.convert({**message.properties, "chain": bytes.fromhex(str(message.properties.get("chain")))}, Range)
    except (msgspec.ValidationError, ValueError) as error:
        raise Poison("malformed", f"a batch's properties are not readable: {explained(error, Range)}") from None
    if not 1 <= span.first <= span.last <= MAX_SEQUENCE:
        raise Poison("malformed", f"a batch cannot range from {span.first} to {span.last}")
    return span


def decode_beacon(message: Message) -> Beacon:
    """Return the gateway's clock of a batch, from its application properties. Raises `Poison('malformed')`."""
    clock = {"boot_id": message.properties.get("boot"), "boottime_ms": message.properties.get("boottime")}
    try:
        return msgspec.convert(clock, Beacon)
    except msgspec.ValidationError as error:
        raise Poison("malformed", f"a batch carries the gateway's boot id and boottime: {explained(error, Beacon)}") from None


def decode_batch(span: Range, message: Message) -> list[Event]:
    """Return the events of a batch. Raises as `read_batch`."""
    return read_batch(span, message).events()


def read_batch(span: Range, message: Message) -> Batch:
    """Return a batch whose body matches its range. Raises `Poison` (`malformed`, `too-big`, `bad-identifier`)."""
    try:
        wires = _batch_decoder.decode(_decompress(message.body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"a batch is not readable: {explained(error, list[EventObject])}") from None
    stream, gateway, lane, expected = span.stream, span.gateway, span.lane, span.first
    for wire in wires:
        if wire.datacontenttype == GAP_CONTENT_TYPE:
            expected = _end_of_gap(wire, expected)
        if wire.sequence != expected or wire.stream != stream or wire.gateway != gateway or wire.lane is not lane:
            raise Poison("malformed", f"a batch of {span.first}..{span.last} holds an event of another stream or sequence")
        expected += 1
    if expected != span.last + 1:
        raise Poison("malformed", f"a batch of {span.first}..{span.last} ends at {expected - 1}")
    return Batch.read(wires)


def _end_of_gap(wire: EventObject, first: int) -> int:
    """Return the last sequence of a gap record. Raises `Poison` unless its first one is `first`."""
    gap = decode_gap(_data(wire))
    if gap.first != first:
        raise Poison("malformed", f"expected sequence {first}, but a gap record of {gap.first}..{gap.last} follows")
    return gap.last


def _decompress(body: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise Poison("too-big", f"a batch must declare its uncompressed size, at most {MAX_BODY_BYTES} bytes")
        return _zstd.decompressor.decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Poison("malformed", f"a batch is not zstd: {error}") from None
