"""CloudEvents in requests (HTTP binding 1.0): binary mode, attributes in `ce-` headers, and structured mode, JSON. Pure."""

import base64
import binascii
from urllib.parse import unquote

import msgspec

from fogline.documents.json_document import read_document
from fogline.documents.json_payload import is_json_type
from fogline.errors import Poison
from fogline.events.event import parse_rfc3339
from fogline.events.identity import UniqueId
from fogline.events.large_body import MAX_INLINE_BYTES
from fogline_edge.adapters.http.wire import JSON, OCTETS, HttpRefused, HttpRequest

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
IDEMPOTENCY_KEY = "idempotency-key"
MAX_ID = 256
"""Longest id of an event, in characters."""
_MAX_TIME_NS = 2**63 - 1
_READ = frozenset({"specversion", "id", "time", "datacontenttype"})


class GivenEvent(msgspec.Struct, frozen=True):
    """The data of a request, and what its sender says of it. `attributes`: those that are stored as properties."""

    data: bytes
    content_type: str | None
    evidence: UniqueId | None = None
    time_ns: int | None = None
    attributes: tuple[tuple[str, str], ...] = ()


class _Document(msgspec.Struct):
    specversion: str
    id: str
    source: str
    type: str
    datacontenttype: str | None = None
    subject: str | None = None
    time: str | None = None
    data: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    data_base64: str | None = None


def read_event(request: HttpRequest, body: bytes) -> GivenEvent:
    """Return the event of a request, which is a CloudEvent or plain data. Raises `HttpRefused` (400, 415)."""
    content_type = request.headers.get("content-type") or None
    essence = (content_type or "").partition(";")[0].strip().lower()
    if essence == BATCH:
        raise HttpRefused(415, "no-batch", f"send each event in a request of its own, as {STRUCTURED}")
    if essence == STRUCTURED:
        if len(body) > MAX_INLINE_BYTES:
            raise HttpRefused(413, "too-big", f"{STRUCTURED} has at most {MAX_INLINE_BYTES} bytes: send it in binary mode")
        return _structured(body)
    given = {name[3:]: unquote(value) for name, value in request.headers.items() if name.startswith("ce-")}
    event_id = given.get("id") or request.headers.get(IDEMPOTENCY_KEY)
    return GivenEvent(
        data=body,
        content_type=content_type,
        evidence=_evidence(event_id, given.get("source") if given.get("id") else None),
        time_ns=_time_ns(given.get("time")),
        attributes=tuple(each for each in given.items() if each[0] not in _READ),
    )


def _structured(body: bytes) -> GivenEvent:
    try:
        found = read_document(body, _Document, "the CloudEvent")
        data, content_type = _data(found)
    except (Poison, binascii.Error, ValueError) as error:
        raise HttpRefused(400, "bad-cloudevent", str(error)) from None
    named = (("source", found.source), ("type", found.type), ("subject", found.subject))
    return GivenEvent(
        data=data,
        content_type=content_type,
        evidence=_evidence(found.id, found.source),
        time_ns=_time_ns(found.time),
        attributes=tuple((name, value) for name, value in named if value is not None),
    )


def _data(found: _Document) -> tuple[bytes, str]:
    """Return the data of a CloudEvent in JSON, and its content type (JSON format 1.0, section 3.1)."""
    raw = bytes(found.data)
    if found.data_base64 is not None:
        if raw:
            raise Poison("malformed", "the CloudEvent has both data and data_base64")
        return base64.b64decode(found.data_base64, validate=True), found.datacontenttype or OCTETS
    if raw[:1] == b'"' and found.datacontenttype is not None and not is_json_type(found.datacontenttype):
        return msgspec.json.decode(raw, type=str).encode(), found.datacontenttype
    return raw, found.datacontenttype or JSON


def _evidence(event_id: str | None, source: str | None) -> UniqueId | None:
    """Return the identity: the id, which is unique within its source if there is one."""
    if not event_id:
        return None
    if len(event_id) > MAX_ID or len(source or "") > MAX_ID:
        raise HttpRefused(400, "bad-id", f"the id of an event, and its source, have at most {MAX_ID} characters")
    return UniqueId(event_id.encode() if source is None else f"{source}\0{event_id}".encode())


def _time_ns(time: str | None) -> int | None:
    """Return the device's own time, or `None` if it is absent, unreadable, or not between 1970 and 2262."""
    if time is None:
        return None
    try:
        time_ns = parse_rfc3339(time)
    except (ValueError, OverflowError):
        return None
    return time_ns if 0 <= time_ns <= _MAX_TIME_NS else None
