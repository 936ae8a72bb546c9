"""An AMQP 1.0 message as a value: the sections that Fogline uses (OASIS AMQP 1.0, part 3, section 3.2)."""

import base64
import uuid
from collections.abc import Mapping

import msgspec

CorrelationId = str | int | uuid.UUID | bytes
"""The types of a message id and a correlation id (AMQP 1.0 part 3, section 3.2.11 to 3.2.14)."""

Property = str | int | bool | bytes | float | None
"""The types of an application property that Fogline uses."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `body`: content of the Data sections. `ttl_ms`: time to live, `None` for no limit.

    `created_ms`: creation time, in milliseconds since 1970.
    """

    body: bytes = b""
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    message_id: CorrelationId | None = None
    correlation_id: CorrelationId | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    created_ms: int | None = None
    durable: bool = False
    ttl_ms: int | None = None
    properties: Mapping[str, Property] = msgspec.field(default_factory=dict)


def pack_id(value: CorrelationId) -> str:
    """Return an id as text that keeps its type: `string:a`, `ulong:1`, `uuid:...`, `binary:<base64>`."""
    match value:
        case str():
            return f"string:{value}"
        case int():
            return f"ulong:{value}"
        case uuid.UUID():
            return f"uuid:{value}"
        case bytes():
            return f"binary:{base64.b64encode(value).decode()}"


def unpack_id(text: str) -> CorrelationId:
    """Return the id of a text from `pack_id`. Raises `ValueError`."""
    kind, _, value = text.partition(":")
    match kind:
        case "string":
            return value
        case "ulong":
            return int(value)
        case "uuid":
            return uuid.UUID(value)
        case "binary":
            return base64.b64decode(value, validate=True)
    raise ValueError(f"unknown type of id: {kind}")
