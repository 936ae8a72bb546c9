"""The trace that an event belongs to: `traceparent` and `tracestate` of W3C Trace Context, as its device sent them."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

_SAMPLED = 0x01
_MAX_STATE = 512
"""Length of `tracestate` that every participant keeps (Trace Context, section 3.3.1.5). A longer one is left out."""
_NAME = "traceparent"
_MARK = b"traceparent="
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII | re.DOTALL)


class TraceContext(NamedTuple):
    """A sampled trace. `trace_id` and `parent_id` (the device's span) are lower-case hex; `state` is `tracestate`, or ""."""

    trace_id: str
    parent_id: str
    state: str = ""


def may_be_traced(body: bytes) -> bool:
    """Return False if a stored event, a JSON object, certainly has no `traceparent`. Much faster than to decode it."""
    return _MARK in body


def sampled_context(properties: str | None) -> TraceContext | None:
    """Return the trace that an event's `properties` (a URL query) name, or None without a valid and sampled `traceparent`.

    Of a repeated name the last one counts, as in column `properties` of table `events`.
    """
    if properties is None or _NAME not in properties:
        return None
    found = dict(parse_qsl(properties, keep_blank_values=True))
    return trace_context(found.get(_NAME, ""), found.get("tracestate", ""))


def trace_context(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """Return the trace of a valid and sampled `traceparent` (Trace Context, section 3.2), or None."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    if not int(trace_id, 16) or not int(parent_id, 16) or not int(flags, 16) & _SAMPLED:
        return None
    return TraceContext(trace_id, parent_id, tracestate if len(tracestate) <= _MAX_STATE else "")
