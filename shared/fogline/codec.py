"""Bytes <-> values of everything that gateway and bridge say to each other, but hello (`fogline.hello`).

A message on a lane is a *batch*: the CloudEvents JSON batch format (CloudEvents 1.0 JSON, section 4), compressed with
zstd, its range of sequences readable from the application properties without the body.

The gateway stores each event as the JSON object that it will send (`encode_event`), so that a batch is made by
joining rows. A payload that calls itself JSON, is valid JSON and has no white space around it travels in `data` byte
for byte; any other travels in `data_base64`.
"""

import base64
import binascii
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import zstandard

from fogline.address import is_identifier, shown
from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, parse_rfc3339
from fogline.message import Message, Property

BATCH_CONTENT_TYPE = "application/cloudevents-batch+json"
BATCH_ENCODING = "zstd"
MAX_BATCH_BYTES = 256 * 1024
"""The most uncompressed bytes that a sender puts into one batch of more than one event."""
MAX_MESSAGE_BYTES = 1024 * 1024
"""The most bytes of one AMQP message, and of one event as JSON."""
MAX_BODY_BYTES = 2 * MAX_MESSAGE_BYTES
"""The most bytes that a batch may decompress to."""


class _Wire(msgspec.Struct, kw_only=True, omit_defaults=True):
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
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: str | None = None


_encoder = msgspec.json.Encoder()
_wire_decoder = msgspec.json.Decoder(_Wire)
_batch_decoder = msgspec.json.Decoder(list[_Wire])
_any_json = msgspec.json.Decoder()
_compressor = zstandard.ZstdCompressor(level=3)


@lru_cache(maxsize=1024)
def is_json_type(content_type: str) -> bool:
    """Whether a media type is JSON by its name (RFC 6838 section 4.2.8, RFC 8259)."""
    essence = content_type.partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")


def _travels_as_json(content_type: str, data: bytes) -> bool:
    return is_json_type(content_type) and _is_bare_json(data)


def _is_bare_json(data: bytes) -> bool:
    """Whether this is valid JSON without white space around it."""
    if not data or data[0] <= 0x20 or data[-1] <= 0x20:
        return False
    try:
        _any_json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def encode_event(event: Event) -> bytes:
    """One event as a CloudEvents JSON object."""
    as_json = _travels_as_json(event.content_type, event.data)
    return _encoder.encode(
        _Wire(
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
            data=msgspec.Raw(event.data) if as_json else msgspec.UNSET,
            data_base64=None if as_json else base64.b64encode(event.data).decode(),
        )
    )


class Frame(NamedTuple):
    """An encoded event in the pieces between id, recordedtime, sequence and data. All but those four is in it."""

    before_id: bytes
    before_time: bytes
    before_sequence: bytes
    before_data: bytes
    before_base64: bytes
    as_json: bool


def frame_of(event: Event) -> Frame:
    """What `event` has in common with events that differ from it in id, recordedtime, sequence and data only.

    In JSON no string holds a bare quotation mark, so that the names of the four attributes are found where they are.
    """
    alike = msgspec.structs.replace(event, content_type="application/json", data=b"0")
    known, wanted = _encoder.encode("application/json"), _encoder.encode(event.content_type)
    head, rest = encode_event(alike).split(b'"id":"', 1)
    before_time, rest = rest.split(b'","source":', 1)[1].split(b'"recordedtime":"', 1)
    before_sequence, rest = rest.split(b'","datacontenttype":', 1)[1].replace(known, wanted, 1).split(b'"sequence":', 1)
    last = b',"lane":' + rest.split(b',"lane":', 1)[1].removesuffix(b'"data":0}')
    return Frame(
        head + b'"id":"',
        b'","source":' + before_time + b'"recordedtime":"',
        b'","datacontenttype":' + before_sequence + b'"sequence":',
        last + b'"data":',
        last + b'"data_base64":"',
        is_json_type(event.content_type),
    )


def encode_framed(parts: Frame, event_id: str, recordedtime: str, sequence: int, data: bytes) -> bytes:
    """The same bytes as `encode_event`, for an event that has no other attributes than those of `parts`."""
    before_id, before_time, before_sequence, before_data, before_base64, as_json = parts
    values = (before_id, event_id.encode(), before_time, recordedtime.encode(), before_sequence, sequence)
    if as_json and _is_bare_json(data):
        return b"%b%b%b%b%b%d%b%b}" % (*values, before_data, data)
    return b'%b%b%b%b%b%d%b%b"}' % (*values, before_base64, base64.b64encode(data))


def decode_event(body: bytes) -> Event:
    """The inverse of `encode_event`. Raises `Poison('malformed')`."""
    return _event(_read(body))


class Replay:
    """A stored event that goes to another place, marked `replayed`. Raises `Poison('malformed')`: it cannot be read.

    `stream`, `sequence`, `lane`: where it stood.
    """

    def __init__(self, body: bytes) -> None:
        wire = self._wire = _read(body)
        self.stream, self.sequence, self.lane = wire.stream, wire.sequence, wire.lane
        _source(wire.source)
        if isinstance(wire.data, msgspec.UnsetType):
            _data(wire)

    def encode(self, stream: str, sequence: int) -> bytes:
        """The event at its new place."""
        wire = self._wire
        wire.stream, wire.sequence, wire.replayed = stream, sequence, True
        return _encoder.encode(wire)


def _read(body: bytes) -> _Wire:
    try:
        return _wire_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"an event is not readable: {error}") from None


def _event(wire: _Wire) -> Event:
    tenant, device = _source(wire.source)
    _check_time(wire.recordedtime)
    return Event(
        id=wire.id,
        tenant=tenant,
        device=device,
        type=wire.type,
        subject=wire.subject,
        time=wire.time,
        recordedtime=wire.recordedtime,
        content_type=wire.datacontenttype,
        data=_data(wire),
        gateway=wire.gateway,
        stream=wire.stream,
        sequence=wire.sequence,
        lane=wire.lane,
        timequality=wire.timequality,
        dedup=wire.dedup,
        adapter=wire.adapter,
        replayed=wire.replayed,
        ttd=wire.ttd,
        expirytime=wire.expirytime,
        properties=wire.properties,
        commandid=wire.commandid,
        commandstate=wire.commandstate,
        correlationid=wire.correlationid,
        status=wire.status,
    )


def _data(wire: _Wire) -> bytes:
    if not isinstance(wire.data, msgspec.UnsetType):
        return bytes(wire.data)
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


@lru_cache(maxsize=256)
def _check_time(text: str) -> None:
    """A gateway stores many events at one moment."""
    try:
        parse_rfc3339(text)
    except ValueError as error:
        raise Poison("malformed", f"recordedtime is not readable: {error}") from None


class Range(msgspec.Struct, frozen=True):
    """What a batch holds, readable without its body: sequences `first` to `last` of one stream.

    `chain` is the chain value of the last event, 16 bytes.
    """

    gateway: str
    stream: str
    lane: Lane
    first: int
    last: int
    chain: bytes


class Beacon(msgspec.Struct, frozen=True):
    """The gateway's own clock as it sent: boot id and CLOCK_BOOTTIME in milliseconds. Deadlines are reckoned in it."""

    boot_id: str
    boottime_ms: int


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
        body=_compressor.compress(b"[" + b",".join(events) + b"]"),
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
    if not 1 <= span.first <= span.last:
        raise Poison("malformed", f"a batch cannot range from {span.first} to {span.last}")
    return span


def decode_beacon(message: Message) -> Beacon:
    """The gateway's clock as it sent a batch. Raises `Poison('malformed')`."""
    boot_id, boottime_ms = message.properties.get("boot"), message.properties.get("boottime")
    if not isinstance(boot_id, str) or not isinstance(boottime_ms, int):
        raise Poison("malformed", "a batch carries the gateway's boot id and boottime")
    return Beacon(boot_id, boottime_ms)


def decode_batch(span: Range, message: Message) -> list[Event]:
    """The events of a batch, checked against its range. Raises `Poison` (`malformed`, `too-big`, `bad-identifier`)."""
    try:
        wires = _batch_decoder.decode(_decompress(message.body))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"a batch is not readable: {error}") from None
    if len(wires) != span.last - span.first + 1:
        raise Poison("malformed", f"a batch of {span.first}..{span.last} holds {len(wires)} events")
    stream, gateway, lane = span.stream, span.gateway, span.lane
    for expected, wire in enumerate(wires, start=span.first):
        if wire.sequence != expected or wire.stream != stream or wire.gateway != gateway or wire.lane is not lane:
            raise Poison("malformed", f"a batch of {span.first}..{span.last} holds an event of another place")
    return [_event(wire) for wire in wires]


def _decompress(body: bytes) -> bytes:
    """At most `MAX_BODY_BYTES` out of one zstd frame."""
    try:
        size = zstandard.frame_content_size(body)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise Poison("too-big", f"a batch must say its size, at most {MAX_BODY_BYTES} bytes uncompressed")
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=size)
    except zstandard.ZstdError as error:
        raise Poison("malformed", f"a batch is not zstd: {error}") from None
