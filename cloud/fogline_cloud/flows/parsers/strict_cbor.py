"""Bounded CBOR decoder that decides nothing silently (RFC 8949). Indefinite lengths are accepted.

Tags that it reads: times (0, 1) as the text or the number that they hold, bignums (2, 3), decimal fractions (4), bigfloats (5),
and 55799 at the start. An `OddValue` stands for any other tag, for a simple value without a meaning, and for the value of a
map's key that is neither a text nor an integer. Text that is not UTF-8 has lone surrogates.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cbor2

from fogline.errors import Poison
from fogline_cloud.flows.parsers import Skip
from fogline_cloud.flows.parsers.strict_json import MAX_BYTES, MAX_DEPTH, TOO_DEEP, OddValue

Cbor = dict[Any, Any] | list[Any] | str | bytes | int | float | bool | OddValue | None

_SELF_DESCRIBED = b"\xd9\xd9\xf7"
_MAX_BIGNUM_BYTES = 128
_MAX_EXPONENT = 100_000
_MAX_SHOWN = 64


def loads(data: bytes) -> Cbor:
    """Decode one data item. Raises `Skip('empty')` and `Poison` (`too-big`, `too-deep`, `duplicate-key`, `malformed`)."""
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"{len(data)} bytes of CBOR; at most {MAX_BYTES}")
    if not data:
        raise Skip("empty", "the body is empty")
    stream = io.BytesIO(data.removeprefix(_SELF_DESCRIBED))
    decoder = cbor2.CBORDecoder(
        stream, semantic_decoders=_Tags(), str_errors="surrogateescape", max_depth=MAX_DEPTH, allow_duplicate_keys=False
    )
    try:
        value = decoder.decode()
    except cbor2.CBORDecodeError as error:
        raise _poison(error) from None
    if stream.read(1):
        raise Poison("malformed", "there is more than one data item")
    return _checked(value)


def _poison(error: cbor2.CBORDecodeError) -> Poison:
    message = str(error)
    if "nesting depth" in message:
        return Poison("too-deep", TOO_DEEP)
    if "Duplicate" in message:
        return Poison("duplicate-key", "a map has a key twice")
    return Poison("malformed", f"not CBOR: {message[:200]}")


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


class _Tags(Mapping[int, Callable[[Any, bool], str | float | OddValue]]):
    def __getitem__(self, tag: int) -> Callable[[Any, bool], str | float | OddValue]:
        """Return the decoder of the item behind a tag. cbor2 passes `in_key` for an item in a map's key or in a set."""

        def decode(value: Any, in_key: bool) -> str | float | OddValue:  # noqa: FBT001 - cbor2 calls it
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
