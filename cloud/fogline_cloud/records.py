"""Kafka record <-> `Event`: the only place where record headers are spelt.

CloudEvents Kafka binding, binary mode (section 3.2): the value is the device's bytes, the attributes are headers
`ce_*`; Eclipse Hono's headers stand beside them. The key is the device, the partition the shard.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, parse_rfc3339, rfc3339
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.identity import Dedup

Headers = list[tuple[str, bytes]]

CHAIN = "fogline_chain"
"""The chain value (16 bytes) of a batch's last event."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is produced: key, value, headers."""

    key: bytes
    value: bytes
    headers: Headers


def record_of(event: Event, chain: bytes | None = None) -> Record:
    """An event as a record; `chain` if it is the last of its batch."""
    headers: Headers = [
        *_plain_headers(event),
        ("ce_gateway", event.gateway.encode()),
        ("ce_stream", event.stream.encode()),
        ("ce_sequence", b"%d" % event.sequence),
        ("ce_lane", event.lane.encode()),
    ]
    if event.replayed:
        headers.append(("ce_replayed", b"true"))
    if chain is not None:
        headers.append((CHAIN, chain))
    return Record(event.device.encode(), event.data, headers)


def report_of(event: Event) -> Record:
    """An event that no gateway numbered, as a record."""
    return Record(event.device.encode(), event.data, _plain_headers(event))


def _plain_headers(event: Event) -> Headers:
    """What every event has, numbered or not."""
    headers: Headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", event.id.encode()),
        ("ce_source", event.source.encode()),
        ("ce_type", event.type.encode()),
        ("ce_subject", event.subject.encode()),
        ("ce_recordedtime", event.recordedtime.encode()),
        ("ce_timequality", event.timequality.encode()),
        ("ce_dedup", event.dedup.encode()),
        ("content-type", event.content_type.encode()),
        ("device_id", event.device.encode()),
        ("orig_adapter", event.adapter.encode()),
        ("creation-time", b"%d" % (parse_rfc3339(event.recordedtime) // 1_000_000)),
    ]
    headers += [(name, str(value).encode()) for name, value in _optional(event) if value is not None]
    return headers


def _optional(event: Event) -> tuple[tuple[str, str | int | None], ...]:
    """Headers that only some events have. `correlation-id`, `status` and `ttd` are Hono's."""
    return (
        ("ce_time", event.time),
        ("ce_expirytime", event.expirytime),
        ("ce_properties", event.properties),
        ("ce_commandid", event.commandid),
        ("ce_commandstate", event.commandstate),
        ("correlation-id", event.correlationid),
        ("status", event.status),
        ("ttd", event.ttd),
    )


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
    found = dict(headers)
    if "ce_stream" not in found:
        return None
    try:
        last = int(found["ce_sequence"])
        first = last
        if found.get("content-type") == GAP_CONTENT_TYPE.encode():
            first = decode_gap(value).first
        return Place(
            found["ce_gateway"].decode(),
            found["ce_stream"].decode(),
            Lane(found["ce_lane"].decode()),
            first,
            last,
            found.get(CHAIN),
        )
    except (KeyError, ValueError) as error:
        raise Poison("malformed", f"a record's headers are not ours: {error}") from None


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
    text = {name: found.decode("utf-8", "replace") for name, found in headers.items()}
    try:
        return Event(
            id=text["ce_id"],
            tenant=tenant,
            device=text["device_id"],
            type=text["ce_type"],
            subject=text["ce_subject"],
            recordedtime=text["ce_recordedtime"],
            content_type=text["content-type"],
            data=value,
            gateway=text["ce_gateway"],
            stream=text["ce_stream"],
            sequence=int(text["ce_sequence"]),
            lane=Lane(text["ce_lane"]),
            timequality=TimeQuality(text["ce_timequality"]),
            dedup=text["ce_dedup"],
            adapter=text["orig_adapter"],
            time=text.get("ce_time"),
            replayed=is_replayed(headers),
            ttd=_number(text.get("ttd")),
            expirytime=text.get("ce_expirytime"),
            properties=text.get("ce_properties"),
            commandid=text.get("ce_commandid"),
            commandstate=text.get("ce_commandstate"),
            correlationid=text.get("correlation-id"),
            status=_number(text.get("status")),
        )
    except (KeyError, ValueError) as error:
        raise Poison("malformed", f"a record's headers are not ours: {error}") from None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None else None
