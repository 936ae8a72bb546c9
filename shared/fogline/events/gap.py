"""The gap record: an event of the gateway, of its own content type, in place of sequences without an event, with the reason."""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline.events.event import Event, Lane, TimeQuality, rfc3339

GAP_CONTENT_TYPE = "application/vnd.fogline-gap+json"


class GapReason(StrEnum):
    """The reason for the missing events."""

    DROPPED = "dropped"
    REFUSED = "refused"
    DAMAGED = "damaged"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    REBUILT = "rebuilt"  # the tables have the events; Kafka lost the records
    LOST = "lost"  # the bridge accepted the events; its Kafka does not have them any more


class Lost(msgspec.Struct, frozen=True):
    """Sequences `first` to `last` of a former stream of the gateway, as far as they are known."""

    stream: str | None = None
    first: int | None = None
    last: int | None = None


class Gap(msgspec.Struct, frozen=True):
    """Sequences `first` to `last` of the record's own stream."""

    reason: GapReason
    first: int
    last: int
    detail: str = ""
    id: str | None = None  # with the next three: the refused event, if its sender had the right to send it
    device: str | None = None
    content_type: str | None = None
    body_base64: str | None = None
    lost: Lost | None = None  # the events of another stream that the record replaces


def encode_gap(gap: Gap) -> bytes:
    """Return the JSON body of a gap record."""
    return msgspec.json.encode(gap)


def decode_gap(body: bytes) -> Gap:
    """Return the gap of a record's body. Raises `Poison('malformed')`."""
    gap = read_document(body, Gap, "a gap record")
    if not 1 <= gap.first <= gap.last:
        raise Poison("malformed", f"a gap cannot range from {gap.first} to {gap.last}")
    return gap


def gap_event(
    gap: Gap,
    *,
    tenant: str,
    gateway: str,
    stream: str,
    lane: Lane,
    now_ns: int,
    timequality: TimeQuality = TimeQuality.SYNCED,
    replayed: bool = False,  # its own stream has acknowledged no arrival that the record replaces
) -> Event:
    """Return the gap record as the gateway's own event, at the last sequence of the gap."""
    return Event(
        id=gap_id(stream, gap),
        tenant=tenant,
        device=gateway,
        type="gap",
        subject="gap",
        recordedtime=rfc3339(now_ns),
        content_type=GAP_CONTENT_TYPE,
        data=encode_gap(gap),
        gateway=gateway,
        stream=stream,
        sequence=gap.last,
        lane=lane,
        timequality=timequality,
        dedup="strong",
        adapter="fogline",
        replayed=replayed,
    )


def above(events: list[Event], sequence: int) -> list[Event]:
    """Return the events above `sequence`, of one stream in order. A gap record across it is shortened. Raises `Poison`."""
    fresh = [event for event in events if event.sequence > sequence]
    if fresh and fresh[0].content_type == GAP_CONTENT_TYPE:
        gap = decode_gap(fresh[0].data)
        if gap.first <= sequence:
            rest = replace(gap, first=sequence + 1)
            fresh[0] = replace(fresh[0], id=gap_id(fresh[0].stream, rest), data=encode_gap(rest))
    return fresh


def gap_id(stream: str, gap: Gap) -> str:
    """Return the id of a gap record."""
    return f"gap-{stream}-{gap.first}-{gap.last}"
