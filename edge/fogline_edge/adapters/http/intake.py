"""Requests as arrivals, and Hono's parameters. Pure."""

import re
from urllib.parse import urlencode

from fogline.documents.media_type import check_encoding, check_media_type, check_payload, event_type
from fogline.errors import Poison
from fogline.events.event import Arrival
from fogline_edge.adapters.http.cloud_events import GivenEvent, read_event
from fogline_edge.adapters.http.paths import EventPath
from fogline_edge.adapters.http.wire import HttpRefused, HttpRequest

ADAPTER = "http"
TTD = "hono-ttd"
TTL = "hono-ttl"
STATUS = "hono-cmd-status"
MAX_PROPERTIES = 4096
"""Longest `properties` of an event, in characters."""
_SECONDS = re.compile(r"[0-9]{1,9}")
_TRACE = ("traceparent", "tracestate")  # W3C Trace Context; a CloudEvent's own attributes win
_PARAMETERS = frozenset({TTD, TTL, STATUS, "qos-level"})


def arrival(target: EventPath, device: str, request: HttpRequest, body: bytes, ttd_s: int | None) -> Arrival:
    """Return the arrival of a request. Raises `HttpRefused` (400, 415)."""
    try:
        check_encoding(request.headers.get("content-encoding"))
    except Poison as error:
        raise HttpRefused(415, error.reason, str(error)) from None
    given = read_event(request, body)
    declared = checked_type(given.content_type) or target.content_type
    try:
        check_payload(declared, given.data)
    except Poison as error:
        raise HttpRefused(400, error.reason, str(error)) from None
    return Arrival(
        device=device,
        channel=target.channel,
        lane=target.lane,
        type=target.type,
        content_type=event_type(declared, None, given.data),
        data=given.data,
        adapter=ADAPTER,
        time_ns=given.time_ns,
        evidence=given.evidence,
        ttd_s=ttd_s,
        expiry_s=seconds(request, TTL),
        properties=_properties(request, given),
    )


def seconds(request: HttpRequest, name: str) -> int | None:
    """Return one of Hono's parameters in seconds; None if it is absent or 0. Raises `HttpRefused` if it is not a number."""
    text = request.parameter(name)
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None:
        raise HttpRefused(400, "bad-seconds", f"{name} is a number of seconds")
    return int(text) or None


def status(request: HttpRequest) -> int:
    """Return the result of a command (`hono-cmd-status`). Raises `HttpRefused` if it is missing or not a status."""
    text = request.parameter(STATUS) or ""
    if len(text) != 3 or not text.isascii() or not text.isdecimal() or not 200 <= int(text) <= 599:
        raise HttpRefused(400, "bad-status", f"{STATUS} is a number from 200 to 599")
    return int(text)


def checked_type(given: str | None) -> str | None:
    """Return the content type of a request. Raises `HttpRefused` if it is no media type, or reserved."""
    try:
        return None if given is None else check_media_type(given)
    except Poison as error:
        raise HttpRefused(400, error.reason, str(error)) from None


def _properties(request: HttpRequest, given: GivenEvent) -> str | None:
    query = [each for each in request.query if each[0] not in _PARAMETERS]
    trace = [(name, request.headers[name]) for name in _TRACE if name in request.headers]
    properties = urlencode([*query, *trace, *given.attributes])
    if len(properties) > MAX_PROPERTIES:
        raise HttpRefused(400, "long-query", f"query and CloudEvents attributes have at most {MAX_PROPERTIES} characters")
    return properties or None
