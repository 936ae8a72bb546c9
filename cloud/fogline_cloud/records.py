"""Kafka record <-> `Event`: the only place where record headers are spelt.

CloudEvents Kafka binding, binary mode (section 3.2): the value is the device's bytes, the attributes are headers
`ce_*`; Eclipse Hono's headers stand beside them. The key is the device, the partition the shard.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fogline.address import source_of
from fogline.codec import EventObject, object_of
from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, parse_rfc3339, rfc3339
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.identity import Dedup
from fogline.short_cache import cache_short

Headers = list[tuple[str, bytes]]

CHAIN = "fogline_chain"
"""The chain value of a batch's last event, in hex, because consumers decode headers as UTF-8. Older records hold 16 bytes."""

_CHAIN_BYTES = 16
MAX_SEQUENCE = 2**63 - 1


class Record(msgspec.Struct, frozen=True, gc=False):
    """What is produced: key, value, headers."""

    key: bytes
    value: bytes
    headers: Headers


def record_of(event: Event, chain: bytes | None = None) -> Record:
    """An event as a record; `chain` if it is the last of its batch. One that no gateway numbered has no place in it."""
    return record_of_object(object_of(event), event.tenant, event.device, event.data, chain)


def record_of_object(event: EventObject, tenant: str, device: str, data: bytes, chain: bytes | None = None) -> Record:
    """The same of an event as it came: `tenant` and `device` are those of its `source`."""
    headers = [
        *_common_headers(
            tenant,
            device,
            event.gateway,
            event.stream,
            event.lane,
            event.type,
            event.subject,
            event.timequality,
            event.dedup,
            event.datacontenttype,
            device,
            event.adapter,
        ),
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
    )
    if optional != _NONE:
        headers += [(name, str(value).encode()) for name, value in zip(_FEW, optional, strict=True) if value is not None]
    if event.stream:
        headers.append(("ce_sequence", b"%d" % event.sequence))
    if event.replayed:
        headers.append(("ce_replayed", b"true"))
    if chain is not None:
        headers.append((CHAIN, chain.hex().encode()))
    return Record(device.encode(), data, headers)


_SAME = ("ce_type", "ce_subject", "ce_timequality", "ce_dedup", "content-type", "device_id", "orig_adapter")


@cache_short(maxsize=16_384)
def _common_headers(
    tenant: str, device: str, gateway: str, stream: str, lane: str, *same: str
) -> tuple[tuple[str, bytes], ...]:
    """What is the same for most events of a device."""
    place = (("ce_gateway", gateway), ("ce_stream", stream), ("ce_lane", lane)) if stream else ()
    told = ("ce_source", source_of(tenant, device)), *zip(_SAME, same, strict=True), *place
    return ("ce_specversion", b"1.0"), *((name, value.encode()) for name, value in told)


@cache_short(maxsize=256)
def _moment_headers(recordedtime: str) -> tuple[tuple[str, bytes], ...]:
    """A gateway stores many events at one moment. Hono's `creation-time`: milliseconds since 1970."""
    since_ms = parse_rfc3339(recordedtime) // 1_000_000
    return ("ce_recordedtime", recordedtime.encode()), ("creation-time", b"%d" % since_ms)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands in its stream. `first` < `last` only for a gap record over a range."""

    gateway: str
    stream: str
    lane: Lane
    first: int
    last: int
    chain: bytes | None


def place_of(headers: Sequence[tuple[str, bytes]], value: bytes) -> Place | None:
    """The transport identity of a record, `None` for one that no gateway numbered. Raises `Poison('malformed')`."""
    found = {name: header for name, header in dict(headers).items() if header is not None}  # Kafka knows null headers
    if "ce_stream" not in found:
        return None
    try:
        last = int(found["ce_sequence"])
        first = last
        if found.get("content-type") == GAP_CONTENT_TYPE.encode():
            first = decode_gap(value).first
        place = Place(
            found["ce_gateway"].decode(),
            found["ce_stream"].decode(),
            Lane(found["ce_lane"].decode()),
            first,
            last,
            _chain_of(found.get(CHAIN)),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:  # the last two: a header without a value
        raise Poison("malformed", f"a record's headers are not ours: {error}") from None
    if not 1 <= place.first <= place.last <= MAX_SEQUENCE:
        raise Poison("malformed", "a record's headers are not ours: no such sequence")
    return place


def _chain_of(header: bytes | None) -> bytes | None:
    """Return the chain value from its header, in hex or, in older records, as 16 raw bytes."""
    return header if header is None or len(header) == _CHAIN_BYTES else bytes.fromhex(header.decode("ascii"))


def is_replayed(headers: Mapping[str, bytes]) -> bool:
    """Whether this may be here already.

    A gateway sent it again because it could not prove it unsent; or a client that numbers nothing gave it an id of its
    own, so that it can be told from others when it comes again.
    """
    own_id = not headers.get("ce_stream") and headers.get("ce_dedup") == Dedup.STRONG.encode()
    return own_id or headers.get("ce_replayed") == b"true"


def completed(headers: Mapping[str, bytes], *, place: str, ingested_ns: int) -> Mapping[str, bytes]:
    """The headers as `event_of` wants them, also of a record that no gateway numbered.

    Such a one needs only Hono's `device_id`: what else it lacks gets a plain meaning, `place` (unique, stable) stands
    in for its id, and the event has no gateway, no stream and sequence 0.
    """
    if "ce_stream" in headers:
        return headers
    return {
        "ce_id": place.encode(),
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
    """The inverse of `record_of`. Raises `Poison('malformed')`."""
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
            **{name: read(headers[header]) for header, (name, read) in _FEW.items() if header in headers},
        )
    except (KeyError, ValueError) as error:
        raise Poison("malformed", f"a record's headers are not ours: {error}") from None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_LANES = {each.encode(): each for each in Lane}
_QUALITIES = {each.encode(): each for each in TimeQuality}
_FEW: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "ce_time": ("time", _text),
    "ce_expirytime": ("expirytime", _text),
    "ce_properties": ("properties", _text),
    "ce_commandid": ("commandid", _text),
    "ce_commandstate": ("commandstate", _text),
    "correlation-id": ("correlationid", _text),
    "status": ("status", lambda value: int(_text(value))),
    "ttd": ("ttd", lambda value: int(_text(value))),
}
"""Headers that only some events have: attribute of the event, and how it is read. The last three are Hono's."""
_NONE = (None,) * len(_FEW)
