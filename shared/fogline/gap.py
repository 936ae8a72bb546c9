"""The gap record: a message that stands for sequences that carry no event, and says why.

The number keeps its place, the loss gets a name. It is a message of the gateway itself (`device` = the gateway), with
a content type of its own, so that readers that do not know it can skip it.
"""

from enum import StrEnum

import msgspec

from fogline.errors import Poison

GAP_CONTENT_TYPE = "application/vnd.fogline-gap+json"


class GapReason(StrEnum):
    """Why there is no event at these sequences."""

    DROPPED = "dropped"
    REFUSED = "refused"
    DAMAGED = "damaged"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


class Gap(msgspec.Struct, frozen=True):
    """Sequences `first` to `last` of the stream that the record stands in.

    `id`, `device`, `body_base64`: of the one event that was refused, as far as its sender had the right to it.
    """

    reason: GapReason
    first: int
    last: int
    detail: str = ""
    id: str | None = None
    device: str | None = None
    content_type: str | None = None
    body_base64: str | None = None


def encode_gap(gap: Gap) -> bytes:
    """A gap as the JSON body of its record."""
    return msgspec.json.encode(gap)


def decode_gap(body: bytes) -> Gap:
    """The inverse of `encode_gap`. Raises `Poison('malformed')`."""
    try:
        gap = msgspec.json.decode(body, type=Gap)
    except msgspec.MsgspecError as error:
        raise Poison("malformed", f"a gap record is not readable: {error}") from None
    if not 1 <= gap.first <= gap.last:
        raise Poison("malformed", f"a gap cannot range from {gap.first} to {gap.last}")
    return gap
