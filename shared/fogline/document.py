"""Decodes the JSON documents of a peer. Pure.

`msgspec` raises three kinds of error for bad input: its own, `UnicodeDecodeError` for text that is not UTF-8, and
`RecursionError` for deep nesting, also in members that the type does not name. Here all of them become `Poison`.
"""

from typing import TypeVar

import msgspec

from fogline.errors import Poison

T = TypeVar("T")


def read_document(body: bytes, shape: type[T], what: str) -> T:
    """Return the document as a `shape`. Raises `Poison('malformed')`; `what` names it in the message."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"{what} is not readable: {error}") from None
