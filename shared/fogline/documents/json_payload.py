"""Selects the payloads that travel as JSON within their event: valid, without white space around, not too deep. Pure."""

import re

import msgspec

from fogline.short_cache import cache_short

MAX_JSON_DEPTH = 64
"""Limit of nested arrays and objects in a payload that travels as JSON. Deeper payloads travel as base64.

Python's own limit differs between versions and callers, so a gateway might accept a payload that a bridge refuses.
"""

_any_json = msgspec.json.Decoder()
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ROUND = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


@cache_short(maxsize=1024)
def is_json_type(content_type: str) -> bool:
    """Return True for a media type that is JSON by its name (RFC 6838 section 4.2.8, RFC 8259)."""
    essence = content_type.partition(";")[0].strip().lower()
    return essence == "application/json" or essence.endswith("+json")


def travels_as_json(content_type: str, data: bytes) -> bool:
    """Return True for a payload that goes into `data` as it is; any other goes into `data_base64`."""
    return is_json_type(content_type) and is_bare_json(data)


def is_bare_json(data: bytes) -> bool:
    """Return True for valid JSON without white space around it, nested at most `MAX_JSON_DEPTH` levels deep."""
    if not data or data[0] <= 0x20 or data[-1] <= 0x20:
        return False
    try:
        _any_json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return data.count(b"[") + data.count(b"{") <= MAX_JSON_DEPTH or not _is_deep(data)


def _is_deep(data: bytes) -> bool:
    brackets = _STRING.sub(b"", data).translate(_ROUND, _NO_BRACKETS)
    for _ in range(MAX_JSON_DEPTH):
        brackets = brackets.replace(b"()", b"")  # the innermost level
    return bool(brackets)
