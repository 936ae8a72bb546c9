"""The payload of one arrival, decoded at most once."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from fogline_edge.rules.fields import BytesField, Field, PointerField

MAX_DEPTH = 64
"""Levels of a CBOR document; a deeper one has no fields. JSON has the limit of the interpreter's recursion."""
_CBOR = re.compile(r"application/(?:[^;]*\+)?cbor", re.IGNORECASE)
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")  # of an array (RFC 6901, section 4)


class Missing(Enum):
    """What stands for a field that a payload does not have."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class Payload:
    """The bytes of an arrival, and the document in them: CBOR if the content type says so, else JSON."""

    __slots__ = ("_content_type", "_document", "data")

    def __init__(self, content_type: str, data: bytes) -> None:
        self.data = data
        self._content_type = content_type
        self._document: Any = None

    @property
    def document(self) -> Any:
        """The decoded document; `MISSING` if the bytes are none."""
        if self._document is None:
            self._document = (_decode(self._content_type, self.data),)
        return self._document[0]

    def value(self, field: Field) -> Any:
        """Return the value of a field; `MISSING` if the payload does not have it."""
        if isinstance(field, BytesField):
            return self.data[field.first : field.last + 1] if field.last < len(self.data) else MISSING
        return follow(self.document, field)


def follow(document: Any, pointer: PointerField) -> Any:
    """Return the value at a pointer (RFC 6901, section 4); `MISSING` if there is none."""
    value = document
    for token in pointer.tokens:
        match value:
            case Mapping() if token in value:
                value = value[token]
            case list() if _INDEX.fullmatch(token) and int(token) < len(value):
                value = value[int(token)]
            case _:
                return MISSING
    return value


def is_cbor(content_type: str) -> bool:
    """Return True if the content type is one of CBOR."""
    return _CBOR.match(content_type) is not None


def _decode(content_type: str, data: bytes) -> Any:
    if is_cbor(content_type):
        return _decode_cbor(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return MISSING


def _decode_cbor(data: bytes) -> Any:
    try:
        import cbor2  # noqa: PLC0415 - costs 1 MB, and few gateways have rules over CBOR
    except ImportError:  # 32-bit ARM: there is no library
        return MISSING
    try:
        return cbor2.loads(data, max_depth=MAX_DEPTH)
    except (cbor2.CBORDecodeError, RecursionError):
        return MISSING
