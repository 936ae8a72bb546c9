"""Strict JSON decoder: bounded, no duplicate names, no NaN (RFC 8259; I-JSON, RFC 7493, section 2.3)."""

import json
from typing import Any, NoReturn

from fogline.errors import Poison

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32

Json = dict[str, Any] | list[Any] | str | int | float | bool | None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Poison("duplicate-key", "an object names a member twice")
    return found


def _constant(name: str) -> NoReturn:
    raise Poison("not-finite", f"{name} is not a JSON number")


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def loads(data: bytes) -> Json:
    """Decode JSON in UTF-8. Raises `Poison` (`too-big`, `too-deep`: see `MAX_DEPTH`, `duplicate-key`, `not-finite`, ...)."""
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"{len(data)} bytes of JSON; at most {MAX_BYTES}")
    try:
        value: Json = _decoder.decode(data.decode())
    except RecursionError:
        raise Poison("too-deep", f"nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise Poison("malformed", f"not JSON: {error}") from None
    return value
