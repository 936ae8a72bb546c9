"""Converts events to Kafka records and back (CloudEvents Kafka binding, binary mode, section 3.2; Eclipse Hono's headers)."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from fogline.address import source_of
from fogline.errors import Poison
from fogline.events.codec import EventObject, object_of
from fogline.events.event import Event, Lane, TimeQuality, parse_rfc3339, rfc3339
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.events.identity import Dedup
from fogline.short_cache import cache_short

Headers = list[tuple[str, bytes]]

CHAIN = "fogline_chain"
"""The chain value of a batch's last event. In hex, because consumers decode headers as UTF-8."""

REPLAYED = "ce_replayed"
"""The header of an event that its gateway may have sent before, in another stream."""
REBUILT = "fogline_rebuilt"
"""A header of gap records that `fogline topics rebuild` writes for events that the tables have, but Kafka lost."""
COPIED = "fogline_copied"
"""A header of records that `fogline topics rebuild` brings from another Kafka.

They are marked as replayed too, because their gateway may have sent some of them again meanwhile."""
MAX_SEQUENCE = 2**63 - 1


class KafkaRecord(msgspec.Struct, frozen=True, gc=False):
    """Key, value and headers of a record to write."""

    key: bytes
    value: bytes
    headers: Headers


def record_of(event: Event, chain: bytes | None = None) -> KafkaRecord:
    """Convert an event to a record. `chain` is given for the last event of a batch. A client's event gets no stream headers."""
    return record_of_object(object_of(event), event.tenant, event.device, event.data, chain)


def record_of_object(event: EventObject, tenant: str, device: str, data: bytes, chain: bytes | None = None) -> KafkaRecord:
    """Convert an event of a received batch to a record. `tenant` and `device` are those of its `source`."""
    common = (event.type, event.subject, event.timequality, event.dedup, event.datacontenttype, device, event.adapter)
    headers = [
        *_common_headers(tenant, device, event.gateway, event.stream, event.lane, *common),
        ("ce_id", event.id.encode()),
        *_moment_headers(event.recordedtime),
    ]
    optional = (
        event.time,
        event.expirytime,
        event.properties,
        event.commandid,
        event.commandstate,
        event.correlationid,
        event.status,
        event.ttd,
        event.dataref,
    )
    if optional != _NONE:
        headers += [(name, str(value).encode()) for name, value in zip(_OPTIONAL, optional, strict=True) if value is not None]
    if event.stream:
        headers.append(("ce_sequence", b"%d" % event.sequence))
    if event.replayed:
        headers.append((REPLAYED, b"true"))
    if chain is not None:
        headers.append((CHAIN, chain.hex().encode()))
    return KafkaRecord(device.encode(), data, headers)


_COMMON = ("ce_type", "ce_subject", "ce_timequality", "ce_dedup", "content-type", "device_id", "orig_adapter")


@cache_short(maxsize=16_384)
def _common_headers(
    tenant: str, device: str, gateway: str, stream: str, lane: str, *common: str
) -> tuple[tuple[str, bytes], ...]:
    position = (("ce_gateway", gateway), ("ce_stream", stream), ("ce_lane", lane)) if stream else ()
    texts = ("ce_source", source_of(tenant, device)), *zip(_COMMON, common, strict=True), *position
    return ("ce_specversion", b"1.0"), *((name, value.encode()) for name, value in texts)


@cache_short(maxsize=256)
def _moment_headers(recordedtime: str) -> tuple[tuple[str, bytes], ...]:
    """Return the time headers, cached because many events share a time. Hono's `creation-time`: milliseconds since 1970."""
    since_ms = parse_rfc3339(recordedtime) // 1_000_000
    return ("ce_recordedtime", recordedtime.encode()), ("creation-time", b"%d" % since_ms)


class StreamPosition(msgspec.Struct, frozen=True):
    """The sequences of a record in its stream. `first` < `last` only for a gap record over a range."""

    gateway: str
    stream: str
    lane: Lane
    first: int
    last: int
    chain: bytes | None


def position_of(headers: Sequence[tuple[str, bytes]], value: bytes) -> StreamPosition | None:
    """Return the stream position of a record, or None for a client's event. Raises `Poison('malformed')`."""
    found = {name: header for name, header in dict(headers).items() if header is not None}  # Kafka knows null headers
    if "ce_stream" not in found:
        return None
    try:
        last = int(found["ce_sequence"])
        first = last
        if found.get("content-type") == GAP_CONTENT_TYPE.encode():
            first = decode_gap(value).first
        position = StreamPosition(
            found["ce_gateway"].decode(),
            found["ce_stream"].decode(),
            Lane(found["ce_lane"].decode()),
            first,
            last,
            bytes.fromhex(found[CHAIN].decode("ascii")) if CHAIN in found else None,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:  # the last two: a header without a value
        raise Poison("malformed", f"malformed record headers: {error}") from None
    if not 1 <= position.first <= position.last <= MAX_SEQUENCE:
        raise Poison("malformed", "malformed record headers: sequence out of range")
    return position


def known_position(headers: Sequence[tuple[str, bytes]], value: bytes) -> StreamPosition | None:
    """Return the position of a record as far as it can be read: a malformed gap record stands for its last sequence only."""
    with contextlib.suppress(Poison):
        return position_of(headers, value)
    with contextlib.suppress(Poison):
        return position_of([header for header in headers if header[0] != "content-type"], value)
    return None


def is_replayed(headers: Mapping[str, bytes]) -> bool:
    """Return True if a gateway sent it again, unable to prove it unsent, or a client without sequences gave it an id."""
    own_id = not headers.get("ce_stream") and headers.get("ce_dedup") == Dedup.STRONG.encode()
    return own_id or headers.get(REPLAYED) == b"true"


def completed(headers: Mapping[str, bytes], *, position: Callable[[], str], ingested_ns: int) -> Mapping[str, bytes]:
    """Return the headers that `event_of` needs, also for a record that no gateway sent: only `device_id` is required then."""
    if "ce_stream" in headers:
        return headers
    return {
        "ce_id": position().encode(),
        "ce_type": b"telemetry",
        "ce_subject": b"",
        "ce_recordedtime": rfc3339(ingested_ns).encode(),
        "ce_timequality": TimeQuality.SYNCED.encode(),
        "ce_dedup": b"weak",
        "content-type": b"application/octet-stream",
        "orig_adapter": b"unknown",
        **headers,
        "ce_lane": Lane.TELEMETRY.encode(),
        "ce_gateway": b"",
        "ce_stream": b"",
        "ce_sequence": b"0",
    }


def event_of(headers: Mapping[str, bytes], value: bytes, tenant: str) -> Event:
    """Convert a record back to an event. Raises `Poison('malformed')`."""
    try:
        return Event(
            _text(headers["ce_id"]),
            tenant,
            _text(headers["device_id"]),
            _text(headers["ce_type"]),
            _text(headers["ce_subject"]),
            _text(headers["ce_recordedtime"]),
            _text(headers["content-type"]),
            value,
            _text(headers["ce_gateway"]),
            _text(headers["ce_stream"]),
            int(_text(headers["ce_sequence"])),
            _LANES[headers["ce_lane"]],
            _QUALITIES[headers["ce_timequality"]],
            _text(headers["ce_dedup"]),
            _text(headers["orig_adapter"]),
            replayed=is_replayed(headers),
            **{name: read(headers[header]) for header, (name, read) in _OPTIONAL.items() if header in headers},
        )
    except (KeyError, ValueError) as error:
        raise Poison("malformed", f"malformed record headers: {error}") from None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_LANES = {each.encode(): each for each in Lane}
_QUALITIES = {each.encode(): each for each in TimeQuality}
_OPTIONAL: dict[str, tuple[str, Callable[[bytes], Any]]] = {  # the event's attribute, and its decoder
    "ce_time": ("time", _text),
    "ce_expirytime": ("expirytime", _text),
    "ce_properties": ("properties", _text),
    "ce_commandid": ("commandid", _text),
    "ce_commandstate": ("commandstate", _text),
    "correlation-id": ("correlationid", _text),
    "status": ("status", lambda value: int(_text(value))),
    "ttd": ("ttd", lambda value: int(_text(value))),
    "ce_dataref": ("dataref", _text),
}
_NONE = (None,) * len(_OPTIONAL)
