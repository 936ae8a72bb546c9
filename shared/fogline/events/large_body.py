"""Bodies of more than `MAX_INLINE_BYTES`: their chunks, and the event that refers to them. Pure.

A gateway stores such a body as *chunks* while it comes, each an event of lane `bulk` with a sequence of its own. The device's
event follows them: it has no data, and its attribute `dataref` (the claim check of CloudEvents, extension Dataref) says of how
many chunks, of how many bytes, and with which SHA-256 its body is. Each of these events can be read alone, so that nobody
between the gateway and the store of bodies keeps state of a body.

| event | `dataref` |
|---|---|
| chunk number 7, from 0 | `fogline-body:{id}?chunk=7` |
| the device's event | `fogline-body:{id}?chunks=342&bytes=67108864&sha256={64 hex digits}` |
| the device sent no more, or the body was a duplicate | `fogline-body:{id}?ended=1` |

Chunk and end have the content type `CHUNK_CONTENT_TYPE`, the event has that of its body. `{id}`: 32 hex digits
(`new_body_id`).
"""

import hashlib
import os
import re
from datetime import UTC, date, datetime
from typing import Final

import msgspec

from fogline.errors import Poison
from fogline.events.event import Arrival, Lane
from fogline.events.identity import channel_frame

MAX_INLINE_BYTES: Final = 262_144
"""Largest body that an event carries itself."""
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Largest body."""
CHUNK_BYTES: Final = 192 * 1024
"""Bytes of each chunk but the last: as JSON, it fills one batch."""
CHUNK_CONTENT_TYPE: Final = "application/vnd.fogline-chunk"
"""Content type of a chunk, and of the record that ends an unfinished body."""

UNFINISHED: Final = "body/"
"""Prefix of `unfinished_key`."""

_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DATAREF = re.compile(
    r"fogline-body:(?P<id>[0-9a-f]{32})\?"
    r"(?:chunk=(?P<number>0|[1-9][0-9]{0,5})"
    r"|chunks=(?P<chunks>[1-9][0-9]{0,5})&bytes=(?P<size>[1-9][0-9]{0,11})&sha256=(?P<sha256>[0-9a-f]{64})"
    r"|(?P<ended>ended=1))",
    re.ASCII,
)


def new_body_id(now_s: float) -> str:
    """Return an id: the time in seconds since 1970, so that old bodies are found by their ids, and 96 random bits."""
    return f"{int(now_s) & 0xFFFFFFFF:08x}{os.urandom(12).hex()}"


def begun_s(body: str) -> int:
    """Return the time in an id, in seconds since 1970. It is that of the gateway's clock, which may have been wrong."""
    return int(body[:8], 16)


def day_of(body: str) -> date:
    """Return the UTC day in an id."""
    return datetime.fromtimestamp(begun_s(body), UTC).date()


class BodyChunk(msgspec.Struct, frozen=True, gc=False):
    """Reference of a chunk. `number` counts from 0."""

    id: str
    number: int

    def __str__(self) -> str:
        """Return the `dataref`."""
        return f"fogline-body:{self.id}?chunk={self.number}"


class BodyRef(msgspec.Struct, frozen=True, gc=False):
    """Reference of an event to its body. `size`: in bytes. `sha256`: in hex."""

    id: str
    chunks: int
    size: int
    sha256: str

    def __str__(self) -> str:
        """Return the `dataref`."""
        return f"fogline-body:{self.id}?chunks={self.chunks}&bytes={self.size}&sha256={self.sha256}"


class BodyEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a body to which no event refers."""

    id: str

    def __str__(self) -> str:
        """Return the `dataref`."""
        return f"fogline-body:{self.id}?ended=1"


def read_dataref(text: str) -> BodyChunk | BodyRef | BodyEnd:
    """Return what a `dataref` refers to. Raises `Poison('bad-dataref')`."""
    found = _DATAREF.fullmatch(text)
    if found is None:
        raise Poison("bad-dataref", f"dataref {text[:200]!r} is none of a large body")
    if found["number"] is not None:
        return BodyChunk(found["id"], int(found["number"]))
    if found["ended"] is not None:
        return BodyEnd(found["id"])
    return BodyRef(found["id"], int(found["chunks"]), int(found["size"]), found["sha256"])


def size_of(dataref: str) -> int:
    """Return the size of the body that an event refers to; 0 for what is no reference of an event."""
    try:
        part = read_dataref(dataref)
    except Poison:
        return 0
    return part.size if isinstance(part, BodyRef) else 0


class BodyNote(msgspec.Struct, frozen=True, array_like=True):
    """What a gateway keeps of a body that it has begun (`unfinished_key`)."""

    device: str
    channel: str
    adapter: str
    type: str


def decode_note(key: str, value: bytes) -> tuple[str, BodyNote | None]:
    """Return the body's id, and its note; None if it cannot be read. Raises `Poison('malformed')` for a key without an id.

    Notes have no checksum, and may come from a damaged file.
    """
    body = key.removeprefix(UNFINISHED)
    if _ID.fullmatch(body) is None:
        raise Poison("malformed", f"{key[:60]!r} names no large body")
    try:
        return body, msgspec.json.decode(value, type=BodyNote)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return body, None


def unfinished_key(body: str) -> str:
    """Return the key under which a gateway keeps, beside its events, that a body was begun and has neither event nor end."""
    return f"{UNFINISHED}{body}"


def end_of_body(arrival: Arrival, body: str) -> Arrival:
    """Return the record that ends a body. `arrival`: a chunk of the body, or its event."""
    return Arrival(
        device=arrival.device,
        channel=arrival.channel,
        lane=Lane.BULK,
        content_type=CHUNK_CONTENT_TYPE,
        data=b"",
        adapter=arrival.adapter,
        type=arrival.type,
        dataref=str(BodyEnd(body)),
    )


class BodyDigests:
    """Digests of a body that comes in pieces: `identity` is that of a small body (`fogline.events.identity.digest`)."""

    def __init__(self, channel: str) -> None:
        self._identity = hashlib.blake2b(channel_frame(channel), digest_size=16)
        self._sha256 = hashlib.sha256()

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        self._identity.update(data)
        self._sha256.update(data)

    @property
    def identity(self) -> bytes:
        """The 16-byte digest by which equal payloads of a channel are recognised."""
        return self._identity.digest()

    @property
    def sha256(self) -> str:
        """The SHA-256 in hex."""
        return self._sha256.hexdigest()
