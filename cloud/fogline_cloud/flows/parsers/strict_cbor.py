"""Strict CBOR decoder (RFC 8949): bounded, no duplicate keys, no NaN, no tags except those of numbers (RFC 8428, section 6).

These are bignums (2, 3), decimal fractions (4), bigfloats (5), and 55799 at the start. Indefinite lengths are accepted.
"""

import io
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cbor2

from fogline.errors import Poison
from fogline_cloud.flows.parsers.strict_json import MAX_BYTES, MAX_DEPTH

Cbor = dict[Any, Any] | list[Any] | str | bytes | int | float | bool | None

_SELF_DESCRIBED = b"\xd9\xd9\xf7"
_MAX_BIGNUM_BYTES = 128
_MAX_EXPONENT = 100_000


def loads(data: bytes) -> Cbor:
    """Decode one data item. Raises `Poison` (`too-big`, `too-deep`, `duplicate-key`, `not-finite`, `tag`, `malformed`)."""
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"{len(data)} bytes of CBOR; at most {MAX_BYTES}")
    stream = io.BytesIO(data.removeprefix(_SELF_DESCRIBED))
    decoder = cbor2.CBORDecoder(stream, semantic_decoders=_Tags(), max_depth=MAX_DEPTH, allow_duplicate_keys=False)
    try:
        value = decoder.decode()
    except cbor2.CBORDecodeError as error:
        raise _poison(error) from None
    if stream.read(1):
        raise Poison("malformed", "there is more than one data item")
    return _checked(value)


def _poison(error: cbor2.CBORDecodeError) -> Poison:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Poison):
            return cause
        cause = cause.__cause__
    message = str(error)
    if "nesting depth" in message:
        return Poison("too-deep", f"nested deeper than {MAX_DEPTH}")
    if "Duplicate" in message:
        return Poison("duplicate-key", "a map has a key twice")
    return Poison("malformed", f"not CBOR: {message[:200]}")


def _checked(value: Any) -> Cbor:
    """Return `value` if it holds only the types of `Cbor`. The decoder has bounded its depth."""
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise Poison("malformed", "a map has a key that is neither a text nor an integer")
            value[key] = _checked(member)
    elif isinstance(value, list):
        value[:] = [_checked(member) for member in value]
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Poison("not-finite", "NaN and infinity are not measured values")
    elif value is cbor2.undefined:
        return None
    elif not isinstance(value, str | bytes | int | None):
        raise Poison("malformed", f"{type(value).__name__} is not accepted")
    return value  # type: ignore[no-any-return]


def _bignum(value: Any) -> int:
    if not isinstance(value, bytes) or len(value) > _MAX_BIGNUM_BYTES:
        raise Poison("malformed", f"a bignum has up to {_MAX_BIGNUM_BYTES} bytes")
    return int.from_bytes(value)


def _fraction(value: Any) -> tuple[int, int]:
    match value:
        case [int() as exponent, int() as mantissa] if abs(exponent) <= _MAX_EXPONENT:
            return exponent, mantissa
    raise Poison("malformed", "a fraction is not an exponent and a mantissa")


def _decimal(value: Any) -> float:
    exponent, mantissa = _fraction(value)
    return float(f"{mantissa}e{exponent}")


def _binary(value: Any) -> float:
    exponent, mantissa = _fraction(value)
    try:
        return math.ldexp(mantissa, exponent)
    except OverflowError:
        return math.inf


_NUMBERS: dict[int, Callable[[Any], float]] = {2: _bignum, 3: lambda value: -1 - _bignum(value), 4: _decimal, 5: _binary}


class _Tags(Mapping[int, Callable[[Any, bool], float]]):
    def __getitem__(self, tag: int) -> Callable[[Any, bool], float]:
        """Return the decoder of the item behind a tag. cbor2 passes `in_key` for an item in a map's key or in a set."""

        def decode(value: Any, in_key: bool) -> float:  # noqa: FBT001 - cbor2 calls it
            read = _NUMBERS.get(tag)
            if read is None or in_key:
                raise Poison("tag", f"tag {tag} is not accepted")
            return read(value)

        return decode

    def __iter__(self) -> Iterator[int]:
        return iter(_NUMBERS)

    def __len__(self) -> int:
        return len(_NUMBERS)
