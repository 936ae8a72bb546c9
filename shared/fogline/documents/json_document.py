"""Decodes the JSON documents of a peer. All errors for bad input, also in UTF-8 or by deep nesting, become `Poison`. Pure."""

from typing import TypeVar

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Poison

T = TypeVar("T")


def read_document(body: bytes, shape: type[T], what: str) -> T:
    """Return the document as a `shape`. Raises `Poison('malformed')`, whose message names the document as `what`."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Poison("malformed", f"{what} is not readable: {explained(error, shape)}") from None
