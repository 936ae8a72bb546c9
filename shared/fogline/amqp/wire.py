"""Converts a `Message` to the bytes of its AMQP sections, and back with proton (AMQP 1.0 part 3, section 3.2)."""

import struct
import uuid
from collections.abc import Mapping

import proton

from fogline.amqp.native import UNREADABLE, text_of
from fogline.errors import Poison
from fogline.message import CorrelationId, Message, Property

_DATA = 0x75
_HEADER, _PROPERTIES, _APPLICATION_PROPERTIES, _BODY = (bytes((0, 0x53, code)) for code in (0x70, 0x73, 0x74, _DATA))
_NULL = b"\x40"
_MAX_BYTE, _MAX_UINT, _MAX_LONG = 2**8 - 1, 2**32 - 1, 2**63 - 1
_EXACT_FLOAT = 2**53
_WITH_SIZE = frozenset([*range(0x70, _DATA + 1), 0x78])  # lists, maps and binaries: header to Data, footer
_EMPTY_LIST = 0x45
_SIZE_BYTES = {0xA0: 1, 0xC0: 1, 0xC1: 1, 0xB0: 4, 0xD0: 4, 0xD1: 4}  # by constructor (AMQP 1.0 part 1, section 1.6)


def encode(message: Message) -> bytes:
    """Return the sections of one message; the body is one Data section.

    Written out here because proton's own encoder takes six times as long, for each batch of a gateway.
    """
    ttl = _NULL if message.ttl_ms is None else b"\x70" + min(message.ttl_ms, _MAX_UINT).to_bytes(4, "big")
    header = [_value(message.durable), _NULL, ttl]
    kinds = [_symbol_or_null(message.content_type), _symbol_or_null(message.content_encoding)]
    created = _NULL if message.created_ms is None else b"\x83" + message.created_ms.to_bytes(8, "big", signed=True)
    times = [_NULL, created]  # the first: absolute-expiry-time
    places = [_value(message.to), _value(message.subject), _value(message.reply_to), _id_value(message.correlation_id)]
    sections = [_HEADER, _list(header), _PROPERTIES, _list([_id_value(message.message_id), _NULL, *places, *kinds, *times])]
    if message.properties:
        pairs = [part for name, value in message.properties.items() for part in (_value(name), _value(value))]
        sections += [_APPLICATION_PROPERTIES, _compound(0xC1, 0xD1, pairs)]
    return b"".join([*sections, _BODY, _variable(0xA0, 0xB0, message.body)])


def _list(values: list[bytes]) -> bytes:
    while values and values[-1] is _NULL:
        values.pop()
    return _compound(0xC0, 0xD0, values) if values else bytes((_EMPTY_LIST,))


def _compound(short: int, long: int, values: list[bytes]) -> bytes:
    content = b"".join(values)
    if len(content) < _MAX_BYTE and len(values) <= _MAX_BYTE:
        return bytes((short, len(content) + 1, len(values))) + content
    return bytes((long,)) + (len(content) + 4).to_bytes(4, "big") + len(values).to_bytes(4, "big") + content


def _variable(short: int, long: int, content: bytes) -> bytes:
    size = len(content)
    return (bytes((short, size)) if size <= _MAX_BYTE else bytes((long,)) + size.to_bytes(4, "big")) + content


def _symbol_or_null(text: str | None) -> bytes:
    """Return a symbol, which is ASCII: other characters, which a device may have sent, become question marks."""
    return _NULL if text is None else _variable(0xA3, 0xB3, text.encode("ascii", "replace"))


def _id_value(value: CorrelationId | None) -> bytes:
    return b"\x80" + value.to_bytes(8, "big") if isinstance(value, int) else _value(value)


def _value(value: Property | uuid.UUID) -> bytes:  # noqa: PLR0911 - one line for each type
    """Return a value with its constructor (AMQP 1.0 part 1, section 1.6)."""
    match value:
        case None:
            return _NULL
        case bool():
            return b"\x41" if value else b"\x42"
        case str():
            return _variable(0xA1, 0xB1, value.encode())
        case proton.int32():
            return b"\x71" + int(value).to_bytes(4, "big", signed=True)
        case int():
            return b"\x81" + value.to_bytes(8, "big", signed=True) if value <= _MAX_LONG else b"\x80" + value.to_bytes(8, "big")
        case float():
            return b"\x82" + struct.pack(">d", value)
        case uuid.UUID():
            return b"\x98" + value.bytes
        case _:
            return _variable(0xA0, 0xB0, value)


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
            created_ms=_created_ms(native.creation_time),
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
    kind = type(body).__name__
    raise Poison("malformed", f"the body is an AMQP value ({kind}): send Data sections, or a value that is binary or a string")


def _text(value: object) -> str | None:
    return str(value) if value else None


def _symbol(value: object) -> str | None:
    """Return a symbol as text. Proton returns an absent one as the text "None"."""
    return None if value == "None" else _text(value)


def _created_ms(seconds: float) -> int | None:
    """Return a creation time. Proton returns a float, and 0 for an absent one."""
    since_ms = round(seconds * 1000)
    return since_ms if 0 < since_ms < _EXACT_FLOAT else None


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
