"""A security context (RFC 8613, section 3): keys from a secret, and messages that they seal and open. Pure.

The COSE structures (section 5) have fixed forms, so they are written byte by byte, and no CBOR library is needed.
"""

from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fogline.errors import Poison

_AES_CCM_16_64_128: Final = 10
_KEY_BYTES: Final = 16
_NONCE_BYTES: Final = 13
_TAG_BYTES: Final = 8
_NULL: Final = b"\xf6"


@dataclass(frozen=True, slots=True)
class OscoreInput:
    """The input of a context (section 3.2), as one of its two sides has it."""

    secret: bytes
    salt: bytes
    sender_id: bytes
    recipient_id: bytes
    id_context: bytes | None = None


@dataclass(frozen=True, slots=True)
class RequestId:
    """The request that a message is, or answers: its kid and Partial IV (`external_aad`, section 5.4)."""

    kid: bytes
    piv: bytes


class SecurityContext:
    """The keys of one side. It keeps no sequence number and no replay window."""

    def __init__(self, given: OscoreInput) -> None:
        self.sender_id = given.sender_id
        self.recipient_id = given.recipient_id
        self.id_context = given.id_context
        self.sender_key = _derive(given, given.sender_id, "Key", _KEY_BYTES)
        self.recipient_key = _derive(given, given.recipient_id, "Key", _KEY_BYTES)
        self.common_iv = _derive(given, b"", "IV", _NONCE_BYTES)
        self._iv = int.from_bytes(self.common_iv)
        self._sealing = AESCCM(self.sender_key, tag_length=_TAG_BYTES)
        self._opening = AESCCM(self.recipient_key, tag_length=_TAG_BYTES)

    def seal(self, plaintext: bytes, request: RequestId, own_piv: bytes | None) -> bytes:
        """Return the ciphertext of a message of this side.

        `own_piv`: its Partial IV, of a sequence number that this side never used before; None in the only response to
        `request` that takes the nonce of the request.
        """
        nonce = self._nonce(self.sender_id, own_piv) if own_piv is not None else self._nonce(request.kid, request.piv)
        return self._sealing.encrypt(nonce, plaintext, _aad(request))

    def open(self, ciphertext: bytes, request: RequestId, piv: bytes | None = None) -> bytes:
        """Return the plaintext of a message of the other side. `piv`: its own; None if it has the nonce of `request`.

        Raises `Poison('not-decrypted')`.
        """
        nonce = self._nonce(self.recipient_id, piv) if piv is not None else self._nonce(request.kid, request.piv)
        try:
            return self._opening.decrypt(nonce, ciphertext, _aad(request))
        except (InvalidTag, ValueError):
            raise Poison("not-decrypted", "the message was changed, or sealed with another key") from None

    def _nonce(self, sender_id: bytes, piv: bytes) -> bytes:
        """Return the AEAD nonce (section 5.2)."""
        parts = len(sender_id) << 96 | int.from_bytes(sender_id) << 40 | int.from_bytes(piv)
        return (parts ^ self._iv).to_bytes(_NONCE_BYTES)


def _derive(given: OscoreInput, owner: bytes, kind: str, size: int) -> bytes:
    """Return a key or the Common IV: HKDF with the `info` of section 3.2.1."""
    context = _NULL if given.id_context is None else _bytes(given.id_context)
    info = (
        b"\x85" + _bytes(owner) + context + bytes((_AES_CCM_16_64_128,)) + _head(3, len(kind)) + kind.encode() + bytes((size,))
    )
    return HKDF(algorithm=SHA256(), length=size, salt=given.salt, info=info).derive(given.secret)


def _aad(request: RequestId) -> bytes:
    """Return the additional authenticated data: `Enc_structure` with `external_aad` (sections 5.3 and 5.4), no Class I."""
    array = b"\x85\x01\x81\x0a" + _bytes(request.kid) + _bytes(request.piv) + b"\x40"
    return b"\x83\x68Encrypt0\x40" + _bytes(array)


def _bytes(value: bytes) -> bytes:
    return _head(2, len(value)) + value


def _head(major: int, length: int) -> bytes:
    """Return the initial bytes of a CBOR item (RFC 8949, section 3) of less than 256 bytes."""
    return bytes((major << 5 | length,)) if length < 24 else bytes((major << 5 | 24, length))
