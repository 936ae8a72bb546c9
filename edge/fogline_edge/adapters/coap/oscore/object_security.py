"""The OSCORE option: Partial IV, kid context and kid (RFC 8613, section 6.1). Pure."""

import msgspec

from fogline.errors import Poison

OSCORE = 9
"""The option's number."""
MAX_PIV_BYTES = 5
_HAS_KID, _HAS_CONTEXT, _PIV_LENGTH, _RESERVED = 0x08, 0x10, 0x07, 0xE0


class ObjectSecurity(msgspec.Struct, frozen=True):
    """The fields of the option; None for one that is not there. `piv`: the Partial IV."""

    piv: bytes | None = None
    kid: bytes | None = None
    kid_context: bytes | None = None


def encode_option(found: ObjectSecurity) -> bytes:
    """Return the option's value: empty if it has no field."""
    flags, parts = 0, list[bytes]()
    if found.piv is not None:
        flags |= len(found.piv)
        parts.append(found.piv)
    if found.kid_context is not None:
        flags |= _HAS_CONTEXT
        parts += (bytes((len(found.kid_context),)), found.kid_context)
    if found.kid is not None:
        flags |= _HAS_KID
        parts.append(found.kid)
    return bytes((flags,)) + b"".join(parts) if flags else b""


def decode_option(value: bytes) -> ObjectSecurity:
    """Return the fields of an option's value. Raises `Poison('bad-oscore')`."""
    if not value:
        return ObjectSecurity()
    flags, at = value[0], 1
    length = flags & _PIV_LENGTH
    if flags & _RESERVED or length > MAX_PIV_BYTES:
        raise Poison("bad-oscore", "the OSCORE option has reserved bits")
    piv = kid = context = None
    if length:
        piv, at = _take(value, at, length)
    if flags & _HAS_CONTEXT:
        size, at = _take(value, at, 1)
        context, at = _take(value, at, size[0])
    if flags & _HAS_KID:
        kid, at = value[at:], len(value)
    if at != len(value) or (length > 1 and value[1] == 0):
        raise Poison("bad-oscore", "the OSCORE option has superfluous bytes")
    return ObjectSecurity(piv, kid, context)


def encode_piv(number: int) -> bytes:
    """Return a sequence number as a Partial IV: in the fewest bytes, at least one."""
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8))


def _take(value: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(value):
        raise Poison("bad-oscore", "the OSCORE option is cut")
    return value[at : at + size], at + size
