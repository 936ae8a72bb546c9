"""Converts a `Message` to the bytes of its AMQP sections and back, with proton (AMQP 1.0 part 3, section 3.2)."""

import uuid
from collections.abc import Mapping
from typing import Any

import proton

from fogline.amqp.native import UNREADABLE, text_of
from fogline.errors import Poison
from fogline.message import CorrelationId, Message, Property

_DATA = 0x75
_WITH_SIZE = frozenset([*range(0x70, _DATA + 1), 0x78])  # lists, maps and binaries: header to Data, footer
_EMPTY_LIST = 0x45
_SIZE_BYTES = {0xA0: 1, 0xC0: 1, 0xC1: 1, 0xB0: 4, 0xD0: 4, 0xD1: 4}  # by constructor (AMQP 1.0 part 1, section 1.6)


def encode(message: Message) -> bytes:
    """Return the sections of one message; the body is one Data section."""
    native = proton.Message(body=message.body, inferred=True, durable=message.durable)
    native.address = message.to
    native.subject = message.subject
    native.reply_to = message.reply_to
    if message.message_id is not None:
        native.id = _native_id(message.message_id)
    if message.correlation_id is not None:
        native.correlation_id = _native_id(message.correlation_id)
    if message.content_type is not None:
        native.content_type = proton.symbol(message.content_type)
    if message.content_encoding is not None:
        native.content_encoding = proton.symbol(message.content_encoding)
    if message.ttl_ms is not None:
        native.ttl = message.ttl_ms / 1000
    if message.properties:
        native.properties = dict(message.properties)
    encoded: bytes = native.encode()
    return encoded


def _native_id(value: CorrelationId) -> Any:
    return proton.ulong(value) if isinstance(value, int) else value


def as_int(value: int) -> int:
    """Return a property of AMQP type `int`, for peers that need it; any other integer is sent as `long`."""
    number: int = proton.int32(value)
    return number


def decode(data: bytes) -> Message:
    """Return the message of these sections. Raises `Poison('malformed')`."""
    native = proton.Message()
    try:
        native.decode(data)
        content = content_of(data)
        return Message(
            body=_body(native.body) if content is None else content,
            to=_text(native.address),
            subject=_text(native.subject),
            reply_to=_text(native.reply_to),
            message_id=_id(native.id),
            correlation_id=_id(native.correlation_id),
            content_type=_symbol(native.content_type),
            content_encoding=_symbol(native.content_encoding),
            durable=bool(native.durable),
            ttl_ms=round(native.ttl * 1000) if native.ttl else None,
            properties=_properties(native.properties),
        )
    except UNREADABLE as error:
        raise Poison("malformed", f"not an AMQP message: {error}") from None


def _body(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | memoryview | bytearray):
        return bytes(body)
    raise ValueError("its body is neither binary nor text")


def _text(value: object) -> str | None:
    return str(value) if value else None


def _symbol(value: object) -> str | None:
    """Return a symbol as text. Proton returns an absent one as the text "None"."""
    return None if value == "None" else _text(value)


def _id(value: object) -> CorrelationId | None:
    """Return a message id. A binary one becomes `bytes`, because proton would send a memoryview as null."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, str | uuid.UUID | bytes):
        return value
    return int(value) if isinstance(value, int) else None


def _properties(found: object) -> dict[str, Property]:
    """Return the application properties as Python's own types; proton has classes of its own for `int` and `symbol`."""
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise TypeError(f"the application properties must be a map, not {type(found).__name__}")
    kept: dict[str, Property] = {}
    for name, value in found.items():
        key = text_of(str(name))
        match value:
            case None | bool():
                kept[key] = value
            case str():
                kept[key] = text_of(value)
            case int():
                kept[key] = int(value)
            case float():
                kept[key] = float(value)
            case memoryview() | bytes():
                kept[key] = bytes(value)
    return kept


def content_of(data: bytes) -> bytes | None:
    """Return all Data sections, joined (proton keeps only the last); `None` for another body. Raises `ValueError`."""
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        code, at = _descriptor(data, at)
        if code not in _WITH_SIZE:
            break
        start, end = _extent(data, at)
        if code == _DATA:
            parts.append(data[start:end])
        at = end
    return (parts[0] if len(parts) == 1 else b"".join(parts)) if parts else None


def _descriptor(data: bytes, at: int) -> tuple[int, int]:
    """Return the descriptor code of the section at `at`, and the offset of its value."""
    if data[at : at + 2] == b"\x00\x53" and at + 2 < len(data):
        return data[at + 2], at + 3
    if data[at : at + 2] == b"\x00\x80" and at + 10 <= len(data):
        return int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
    raise ValueError(f"no section begins at byte {at}")


def _extent(data: bytes, at: int) -> tuple[int, int]:
    """Return the offsets of the first byte of a section's value, after its size, and of its end."""
    constructor = data[at] if at < len(data) else None
    if constructor == _EMPTY_LIST:
        return at + 1, at + 1
    width = _SIZE_BYTES.get(constructor or 0)
    if width is None:
        raise ValueError(f"no list, map or binary begins at byte {at}")
    start = at + 1 + width
    end = start + int.from_bytes(data[at + 1 : start], "big")
    if end > len(data):
        raise ValueError(f"a section ends {end - len(data)} bytes after the message")
    return start, end
