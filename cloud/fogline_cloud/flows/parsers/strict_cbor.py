"""Bounded CBOR decoder that decides nothing silently (RFC 8949). Indefinite lengths are accepted.

Tags that it reads: times (0, 1) as the text or the number that they hold, bignums (2, 3), decimal fractions (4), bigfloats (5),
and 55799 at the start. An `OddValue` stands for any other tag, for a simple value without a meaning, for the value of a map's
key that is neither a text nor an integer, and for that of a key that occurs twice. Text that is not UTF-8 has lone surrogates.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cbor2

from fogline.errors import Poison
from fogline_cloud.flows.parsers import Skip
from fogline_cloud.flows.parsers.strict_json import MAX_BYTES, NAMED_TWICE, OddValue

Cbor = dict[Any, Any] | list[Any] | str | bytes | int | float | bool | OddValue | None

_SELF_DESCRIBED = b"\xd9\xd9\xf7"
_MAX_BIGNUM_BYTES = 128
_MAX_EXPONENT = 100_000
_MAX_SHOWN = 64
_MAX_DEPTH = 128  # of the decoder; `fogline_cloud.flows.parsers.json_values` reads less, and names what is deeper
_PAIRS = 0xFFFF_FFFF_464C_7072  # a tag of no meaning (RFC 8949, section 3.4, assigns none like it), for the pairs of a map
_ARRAY, _MAP, _TAG = 4, 5, 6  # major types (section 3.1)
_INDEFINITE = 31
_MOST = 2**64 - 1


def loads(data: bytes) -> Cbor:
    """Decode one data item. Raises `Skip('empty')` and `Poison` (`too-big`, `too-deep`, `malformed`)."""
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"{len(data)} bytes of CBOR; at most {MAX_BYTES}")
    if not data:
        raise Skip("empty", "the body is empty")
    data = data.removeprefix(_SELF_DESCRIBED)
    try:
        return _checked(_decoded(data, _MAX_DEPTH))
    except cbor2.CBORDecodeError as error:
        if "Duplicate" not in str(error):
            raise _poison(error) from None
    try:  # the decoder has no other way to tell which key occurs twice
        return _checked(_decoded(_with_pairs(data), 2 * _MAX_DEPTH))
    except cbor2.CBORDecodeError as error:
        raise _poison(error) from None


def _decoded(data: bytes, depth: int) -> Any:
    stream = io.BytesIO(data)
    decoder = cbor2.CBORDecoder(
        stream, semantic_decoders=_Tags(), str_errors="surrogateescape", max_depth=depth, allow_duplicate_keys=False
    )
    value = decoder.decode()
    if stream.read(1):
        raise Poison("malformed", "there is more than one data item")
    return value


def _poison(error: cbor2.CBORDecodeError) -> Poison:
    message = str(error)
    if "nesting depth" in message:
        return Poison("too-deep", f"nested deeper than {_MAX_DEPTH}")
    return Poison("malformed", f"not CBOR: {message[:200]}")


def _with_pairs(data: bytes) -> bytes:
    """Return the item with each map as an array of its keys and values, behind the tag `_PAIRS`."""
    found = bytearray()
    at = 0
    while at < len(data):
        begin, (major, low) = at, divmod(data[at], 32)
        more = 1 << (low - 24) if 24 <= low < 28 else 0  # RFC 8949, section 3
        at += 1 + more
        count = int.from_bytes(data[begin + 1 : at]) if more else low
        if major == _MAP:
            found += (_TAG << 5 | 27).to_bytes() + _PAIRS.to_bytes(8)
            found += (_ARRAY << 5 | _INDEFINITE).to_bytes() if low == _INDEFINITE else _array_head(2 * count)
            continue
        if major in {2, 3} and low != _INDEFINITE:  # a byte string, a text
            at += count
        found += data[begin:at]
    return bytes(found)


def _array_head(count: int) -> bytes:
    return (_ARRAY << 5 | 27).to_bytes() + min(count, _MOST).to_bytes(8)


def _map_of(pairs: Any) -> dict[Any, Any] | OddValue:
    """Return the map of these pairs, in which a key that occurs twice has no value."""
    if not isinstance(pairs, list) or len(pairs) % 2:
        return OddValue("a map that is no pairs of keys and values")
    found: dict[Any, Any] = {}
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        name, member = _member(key, value)
        found[name] = NAMED_TWICE if name in found else member
    return found


def _checked(value: Any) -> Cbor:
    """Return `value` if it holds only the types of `Cbor`. The decoder has bounded its depth."""
    if isinstance(value, dict):
        return dict(_member(key, member) for key, member in value.items())
    if isinstance(value, list):
        value[:] = [_checked(member) for member in value]
    elif value is cbor2.undefined:
        return None
    elif not isinstance(value, str | bytes | int | float | OddValue | None):
        return OddValue(f"a {type(value).__name__}, which has no meaning here")
    return value  # type: ignore[no-any-return]


def _member(key: Any, member: Any) -> tuple[Any, Cbor]:
    if isinstance(key, str | int) and not isinstance(key, bool):
        return key, _checked(member)
    return f"key {key!r}"[:_MAX_SHOWN], OddValue("a key that is neither a text nor an integer")


def _bignum(value: Any) -> int:
    if not isinstance(value, bytes) or len(value) > _MAX_BIGNUM_BYTES:
        raise ValueError(f"a bignum has up to {_MAX_BIGNUM_BYTES} bytes")
    return int.from_bytes(value)


def _fraction(value: Any) -> tuple[int, int]:
    match value:
        case [int() as exponent, int() as mantissa] if abs(exponent) <= _MAX_EXPONENT:
            return exponent, mantissa
    raise ValueError("a fraction is an exponent and a mantissa")


def _decimal(value: Any) -> float:
    exponent, mantissa = _fraction(value)
    return float(f"{mantissa}e{exponent}")


def _binary(value: Any) -> float:
    exponent, mantissa = _fraction(value)
    try:
        return math.ldexp(mantissa, exponent)
    except OverflowError:
        return math.inf


def _time(value: Any) -> str | float:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError("a time is a text or a number")  # noqa: TRY004 - caught with the other wrong contents of tags
    return value


_READ: dict[int, Callable[[Any], str | float]] = {
    0: _time,
    1: _time,
    2: _bignum,
    3: lambda value: -1 - _bignum(value),
    4: _decimal,
    5: _binary,
}


class _Tags(Mapping[int, Callable[[Any, bool], Any]]):
    def __getitem__(self, tag: int) -> Callable[[Any, bool], Any]:
        """Return the decoder of the item behind a tag. cbor2 passes `in_key` for an item in a map's key or in a set."""

        def decode(value: Any, in_key: bool) -> Any:  # noqa: FBT001 - cbor2 calls it
            if tag == _PAIRS and not in_key:
                return _map_of(value)
            read = _READ.get(tag)
            if read is None or in_key:
                return OddValue(f"tag {tag}")
            try:
                return read(value)
            except ValueError as error:
                return OddValue(str(error))

        return decode

    def __iter__(self) -> Iterator[int]:
        return iter(_READ)

    def __len__(self) -> int:
        return len(_READ)
