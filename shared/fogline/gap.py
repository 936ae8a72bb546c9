"""The gap record: a message that stands for sequences that carry no event, and says why.

The number keeps its place, the loss gets a name. It is a message of the gateway itself (`device` = the gateway), with
a content type of its own, so that readers that do not know it can skip it.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from fogline.document import read_document
from fogline.errors import Poison
from fogline.event import Event, Lane, TimeQuality, rfc3339

GAP_CONTENT_TYPE = "application/vnd.fogline-gap+json"


class GapReason(StrEnum):
    """Why there is no event at these sequences."""

    DROPPED = "dropped"
    REFUSED = "refused"
    DAMAGED = "damaged"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


class Lost(msgspec.Struct, frozen=True):
    """What a former stream of the gateway had: its sequences `first` to `last`, as far as they are known."""

    stream: str | None = None
    first: int | None = None
    last: int | None = None


class Gap(msgspec.Struct, frozen=True):
    """Sequences `first` to `last` of the stream that the record stands in.

    `id`, `device`, `body_base64`: of the one event that was refused, as far as its sender had the right to it. `lost`: if
    the record stands for events of another stream, which ones.
    """

    reason: GapReason
    first: int
    last: int
    detail: str = ""
    id: str | None = None
    device: str | None = None
    content_type: str | None = None
    body_base64: str | None = None
    lost: Lost | None = None


def encode_gap(gap: Gap) -> bytes:
    """A gap as the JSON body of its record."""
    return msgspec.json.encode(gap)


def decode_gap(body: bytes) -> Gap:
    """The inverse of `encode_gap`. Raises `Poison('malformed')`."""
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
    replayed: bool = False,
) -> Event:
    """A gap as the gateway's own event; it stands at the gap's last sequence.

    `replayed`: it stands for no arrival that its own stream has acknowledged.
    """
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
    """What of the events of one stream, in order, lies above `sequence`; a gap that reaches over it begins after it.

    Raises `Poison('malformed')` for a gap record that cannot be read.
    """
    fresh = [event for event in events if event.sequence > sequence]
    if fresh and fresh[0].content_type == GAP_CONTENT_TYPE:
        gap = decode_gap(fresh[0].data)
        if gap.first <= sequence:
            begun = replace(gap, first=sequence + 1)
            fresh[0] = replace(fresh[0], id=gap_id(fresh[0].stream, begun), data=encode_gap(begun))
    return fresh


def gap_id(stream: str, gap: Gap) -> str:
    """The id of a gap's event."""
    return f"gap-{stream}-{gap.first}-{gap.last}"
