"""`Message` <-> the bytes of its AMQP sections, by proton."""

import uuid
from collections.abc import Mapping
from typing import Any

import proton

from fogline.amqp.native import UNREADABLE, text_of
from fogline.amqp.sections import content_of
from fogline.errors import Poison
from fogline.message import CorrelationId, Message, Property


def encode(message: Message) -> bytes:
    """The bare and annotated sections of one message; the body is one Data section."""
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
    """A property that goes out as AMQP's `int`, for a peer that minds; any other integer is a `long`."""
    number: int = proton.int32(value)
    return number


def decode(data: bytes) -> Message:
    """One message out of its sections. Raises `Poison('malformed')`."""
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
    """Proton gives a symbol that is not there as the text "None"."""
    return None if value == "None" else _text(value)


def _id(value: object) -> CorrelationId | None:
    """A binary id decodes to a memoryview, which proton would send on as null: keep bytes."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, str | uuid.UUID | bytes):
        return value
    return int(value) if isinstance(value, int) else None


def _properties(found: object) -> dict[str, Property]:
    """As Python's own types: proton gives an `int` or a `symbol` as a class of its own."""
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
