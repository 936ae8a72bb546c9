"""Encodes the body of a command as the value of a characteristic. Pure."""

from enum import StrEnum

import msgspec

from fogline.errors import Poison

MAX_BYTES = 512
"""The longest value of a characteristic (Bluetooth Core Specification, Vol 3, Part F, section 3.2.9)."""


class Encoding(StrEnum):
    """The encoding of a command's body: the bytes, their hex digits, or a JSON number that becomes a little-endian integer."""

    BYTES = "bytes"
    HEX = "hex"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    SINT8 = "sint8"
    SINT16 = "sint16"
    SINT32 = "sint32"


def encode_value(encoding: Encoding, body: bytes) -> bytes:
    """Return the bytes to write. Raises `Poison` (`malformed`, `too-big`) for a body that does not have the encoding."""
    encoded = _encoded(encoding, body)
    if len(encoded) > MAX_BYTES:
        raise Poison("too-big", f"{len(encoded)} bytes for a characteristic; at most {MAX_BYTES}")
    return encoded


def _encoded(encoding: Encoding, body: bytes) -> bytes:
    if encoding is Encoding.BYTES:
        return body
    return _from_hex(body) if encoding is Encoding.HEX else _number(encoding, body)


def _from_hex(body: bytes) -> bytes:
    try:
        return bytes.fromhex(body.decode("ascii"))
    except ValueError:
        raise Poison("malformed", "the command's body is not hex digits, two per byte") from None


def _number(encoding: Encoding, body: bytes) -> bytes:
    width = int(encoding.value[4:]) // 8
    try:
        return msgspec.json.decode(body, type=int).to_bytes(width, "little", signed=encoding.startswith("sint"))
    except (ValueError, OverflowError):  # msgspec's errors are ValueErrors too
        raise Poison("malformed", f"the command's body is not a {encoding.value} as a JSON number") from None
