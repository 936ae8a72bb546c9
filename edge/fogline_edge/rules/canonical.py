"""One encoding for each value, whatever its spelling, so that gateways that receive it in JSON and in CBOR agree. Pure.

- A number is its value: `1`, `1.0` and `1e0` are the same. An integer is exact at any size. Any other number is the nearest
  IEEE 754 double, as most programs read JSON (RFC 8259, section 6; RFC 8949, section 4.2.2).
- A text, a number, `true` and a byte string are never the same: `"1"` is not `1`, and a text is not its UTF-8 bytes. Unicode is
  not normalized.
- The order of an object's members does not matter (RFC 8259, section 4). The order of an array does.
- A date of CBOR (tags 0 and 1) is its moment in microseconds, and a UUID (tag 37) its 16 bytes. Neither is the text that JSON
  has.
- Other tags and simple values, infinities and NaN, and documents deeper than `MAX_DEPTH`, have no encoding.

Equal encodings have equal values: each is a letter for the kind, then its length or its count, then the rest.
"""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

MAX_DEPTH = 64
"""Levels of arrays and objects in a value."""
_MAX_DIGITS = 1000  # of an integer that CBOR has as a decimal fraction; a larger one would take all memory
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class NotCanonicalError(ValueError):
    """The value has no canonical encoding."""


def canonical(value: Any, depth: int = MAX_DEPTH) -> bytes:
    """Return the encoding of a decoded JSON or CBOR value. Raises `NotCanonicalError`."""
    encode = _SCALARS.get(type(value))
    if encode is not None:
        return encode(value)
    if depth < 1:
        raise NotCanonicalError("the value has too many levels")
    if isinstance(value, list | tuple):
        return b"a%d:" % len(value) + b"".join([canonical(each, depth - 1) for each in value])
    if isinstance(value, Mapping):
        members = sorted([canonical(name, depth - 1) + canonical(each, depth - 1) for name, each in value.items()])
        return b"o%d:" % len(members) + b"".join(members)
    raise NotCanonicalError(f"a {type(value).__name__} has no canonical form")


def _text(value: str) -> bytes:
    try:
        return _framed(b"s", value.encode())
    except UnicodeEncodeError:
        raise NotCanonicalError("a text with a lone surrogate has no canonical form") from None


def _integer(value: int) -> bytes:
    length = value.bit_length() // 8 + 1
    return _framed(b"n", value.to_bytes(length, "big", signed=True))  # not as digits: Python converts at most 4,300 of them


def _number(value: float) -> bytes:
    if not math.isfinite(value):
        raise NotCanonicalError(f"{value} is no number of JSON")
    return _integer(int(value)) if value.is_integer() else b"f" + value.hex().encode() + b";"


def _decimal(value: Decimal) -> bytes:
    if value.is_finite() and value.adjusted() < _MAX_DIGITS and value == value.to_integral_value():
        return _integer(int(value))
    return _number(math.nan if value.is_nan() else float(value))


def _moment(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise NotCanonicalError("a date without an offset is no moment")
    return b"t%d;" % ((value - _EPOCH) // _MICROSECOND)


def _framed(kind: bytes, value: bytes) -> bytes:
    return kind + b"%d:" % len(value) + value


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: lambda value: b"+" if value else b"-",
    type(None): lambda _: b"0",
    bytes: lambda value: _framed(b"b", value),
    Decimal: _decimal,
    datetime: _moment,
    UUID: lambda value: b"u" + value.bytes,
}
