"""One encoding for each value, whatever its spelling, so that gateways that receive it in JSON and in CBOR agree. Pure.

- A number is its value: `1`, `1.0` and `1e0` are the same. An integer is exact at any size. Any other number is the nearest
  IEEE 754 double, as most programs read JSON (RFC 8259, section 6; RFC 8949, section 4.2.2).
- A text, a number, `true` and a byte string are never the same: `"1"` is not `1`, and a text is not its UTF-8 bytes. Unicode is
  not normalized.
- The order of an object's members does not matter (RFC 8259, section 4). The order of an array does.
- A date of CBOR (tags 0 and 1) is its moment in microseconds, and a UUID (tag 37) its 16 bytes. Neither is the text that JSON
  has.
- Other tags and simple values, infinities and NaN, and documents deeper than `MAX_DEPTH`, have no encoding.

Equal encodings have equal values: each is a letter for the kind, its length or count unless the kind has one, and the rest.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import isfinite, nan
from operator import add
from struct import Struct
from typing import Any
from uuid import UUID

MAX_DEPTH = 64
"""Levels of arrays and objects in a value."""
_MAX_DIGITS = 1000  # of an integer that CBOR has as a decimal fraction; a larger one would take all memory
_WORD = 1 << 63
_double = Struct(">d").pack
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
    depth -= 1
    if isinstance(value, Mapping):
        members = [name_of(name) if type(name) is str else canonical(name, depth) for name in value]
        values = [encode(each) if (encode := _SCALARS.get(type(each))) else canonical(each, depth) for each in value.values()]
        return b"o" + len(members).to_bytes(4) + b"".join(sorted(map(add, members, values)))
    if isinstance(value, list | tuple):
        return b"a" + len(value).to_bytes(4) + b"".join([canonical(each, depth) for each in value])
    raise NotCanonicalError(f"a {type(value).__name__} has no canonical form")


def _text(value: str) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise NotCanonicalError("a text with a lone surrogate has no canonical form") from None
    return b"s" + len(data).to_bytes(4) + data


name_of = lru_cache(maxsize=1024)(_text)
"""`canonical` of a text that returns, such as the name of a member."""


def _integer(value: int) -> bytes:
    if -_WORD <= value < _WORD:
        return b"i" + value.to_bytes(8, signed=True)
    data = value.to_bytes(value.bit_length() // 8 + 1, signed=True)
    return b"n" + len(data).to_bytes(4) + data


def _number(value: float) -> bytes:
    if value.is_integer():
        return _integer(int(value))
    if not isfinite(value):
        raise NotCanonicalError(f"{value} is no number of JSON")
    return b"f" + _double(value)


def _decimal(value: Decimal) -> bytes:
    if value.is_finite() and value.adjusted() < _MAX_DIGITS and value == value.to_integral_value():
        return _integer(int(value))
    return _number(nan if value.is_nan() else float(value))


def _moment(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise NotCanonicalError("a date without an offset is no moment")
    return b"t" + _integer((value - _EPOCH) // _MICROSECOND)


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    str: _text,
    int: _integer,
    float: _number,
    bool: lambda value: b"+" if value else b"-",
    type(None): lambda _: b"0",
    bytes: lambda value: b"b" + len(value).to_bytes(4) + value,
    Decimal: _decimal,
    datetime: _moment,
    UUID: lambda value: b"u" + value.bytes,
}
