"""Bounded JSON decoder that decides nothing silently (RFC 8259; I-JSON, RFC 7493, section 2.3).

A document that is no JSON is an error. Within a document, a member that is named twice is an `OddValue`, a number beyond a
double, NaN and Infinity are infinite or NaN, and text that is not UTF-8 has lone surrogates. So one such value does not cost
the others: the flow names it, and keeps the rest (`fogline_cloud.flows.parsers.Leftover`).
"""

import json
import math
from typing import Any

import msgspec

from fogline.errors import Poison
from fogline_cloud.flows.parsers import Skip

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
TOO_DEEP = f"nested deeper than {MAX_DEPTH}"


class OddValue(msgspec.Struct, frozen=True):
    """A part of a document that cannot be a value. `why`: what is wrong with it, in a few words."""

    why: str


NAMED_TWICE = OddValue("named twice")
Json = dict[str, Any] | list[Any] | str | int | float | bool | OddValue | None

_BOM = b"\xef\xbb\xbf"  # a decoder may ignore it (RFC 8259, section 8.1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                found[name] = NAMED_TWICE
            seen.add(name)
    return found


def _integer(digits: str) -> float:
    """Return an integer, infinite with more digits than a double has, of which Python reads up to 4,300 only."""
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf


_MAX_DIGITS = 400
_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=float)
_patient = json.JSONDecoder(object_pairs_hook=_object, parse_constant=float, parse_int=_integer)  # slower


def loads(data: bytes) -> Json:
    """Decode JSON. Raises `Skip('empty')` and `Poison` (`too-big`, `too-deep`: see `MAX_DEPTH`, `malformed`)."""
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"{len(data)} bytes of JSON; at most {MAX_BYTES}")
    if not data:
        raise Skip("empty", "the body is empty")
    try:
        return _decoded(data.removeprefix(_BOM).decode(errors="surrogateescape"))
    except RecursionError:
        raise Poison("too-deep", TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise Poison("malformed", f"not JSON: {error}") from None


def _decoded(text: str) -> Json:
    value: Json
    try:
        value = _decoder.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of very many digits
        value = _patient.decode(text)
    return value
