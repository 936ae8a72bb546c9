"""Cipher suites with pre-shared keys, their keys, and the protection of records. Pure.

All suites are authenticated encryption with AES-128 and SHA-256 (RFC 5487, 6655, 8442). Suites without encryption, without
authentication or with CBC do not exist here, so no client can be talked down to them.
"""

import hashlib
import hmac
import struct
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM

from fogline_edge.adapters.coap.dtls.wire import DTLS_1_2, ContentType, Record

_KEY_BYTES, _SALT_BYTES, _EXPLICIT_BYTES = 16, 4, 8
_CID_PREFIX = b"\xff" * 8


class CipherSuite(NamedTuple):
    """A cipher suite. `ecdhe`: with ephemeral Diffie-Hellman, so that a stolen key reads no former session."""

    number: int
    name: str
    ecdhe: bool
    tag_bytes: int
    is_ccm: bool


SUITES = (
    CipherSuite(0xD001, "ECDHE_PSK_WITH_AES_128_GCM_SHA256", ecdhe=True, tag_bytes=16, is_ccm=False),
    CipherSuite(0xD005, "ECDHE_PSK_WITH_AES_128_CCM_SHA256", ecdhe=True, tag_bytes=16, is_ccm=True),
    CipherSuite(0xD003, "ECDHE_PSK_WITH_AES_128_CCM_8_SHA256", ecdhe=True, tag_bytes=8, is_ccm=True),
    CipherSuite(0x00A8, "PSK_WITH_AES_128_GCM_SHA256", ecdhe=False, tag_bytes=16, is_ccm=False),
    CipherSuite(0xC0A4, "PSK_WITH_AES_128_CCM", ecdhe=False, tag_bytes=16, is_ccm=True),
    CipherSuite(0xC0A8, "PSK_WITH_AES_128_CCM_8", ecdhe=False, tag_bytes=8, is_ccm=True),
)
"""Those that the gateway speaks, the preferred one first. RFC 7252 requires the last one."""


def prf(secret: bytes, label: bytes, seed: bytes, size: int) -> bytes:
    """Return `size` bytes of the pseudorandom function with SHA-256 (RFC 5246, section 5)."""
    seed, found = label + seed, b""
    a = seed
    while len(found) < size:
        a = hmac.digest(secret, a, hashlib.sha256)
        found += hmac.digest(secret, a + seed, hashlib.sha256)
    return found[:size]


def premaster(psk: bytes, shared: bytes | None) -> bytes:
    """Return the premaster secret (RFC 4279, section 2). `shared`: agreed by Diffie-Hellman (RFC 5489, section 2)."""
    other = bytes(len(psk)) if shared is None else shared
    return len(other).to_bytes(2) + other + len(psk).to_bytes(2) + psk


class RecordProtection:
    """Seals the records of the gateway and opens those of one client, all of epoch 1.

    `cid_in`, `cid_out`: the connection ids that the client's records and the gateway's have; empty for none.
    """

    __slots__ = ("_in", "_out", "_salt_in", "_salt_out", "_suite", "cid_in", "cid_out", "sent")

    def __init__(self, suite: CipherSuite, master: bytes, randoms: bytes, cid_in: bytes = b"", cid_out: bytes = b"") -> None:
        """`randoms`: the server's and the client's."""
        block = prf(master, b"key expansion", randoms, 2 * (_KEY_BYTES + _SALT_BYTES))
        self._suite = suite
        self._in, self._out = _cipher(suite, block[:16]), _cipher(suite, block[16:32])
        self._salt_in, self._salt_out = block[32:36], block[36:]
        self.cid_in, self.cid_out = cid_in, cid_out
        self.sent = 0
        """Records sealed so far: the sequence number of the next one."""

    def seal(self, kind: int, plain: bytes) -> bytes:
        """Return a record. No sequence number is used twice: it is part of the nonce."""
        number = 1 << 48 | self.sent
        self.sent += 1
        head, aad, plain = _framed(kind, number, self.cid_out, plain)
        explicit = number.to_bytes(_EXPLICIT_BYTES)
        sealed = explicit + self._out.encrypt(self._salt_out + explicit, plain, aad)
        return head + len(sealed).to_bytes(2) + sealed

    def open(self, record: Record) -> tuple[int, bytes] | None:
        """Return the content type and the content of a record; None if it was not sealed with these keys."""
        size = len(record.body) - _EXPLICIT_BYTES - self._suite.tag_bytes
        if size < 0 or record.cid != self.cid_in or record.version != DTLS_1_2:
            return None
        if record.cid:
            aad = _cid_aad(record.number, record.cid, size)
        else:
            aad = struct.pack("!QBHH", record.number, record.kind, DTLS_1_2, size)
        try:
            plain = self._in.decrypt(self._salt_in + record.body[:_EXPLICIT_BYTES], record.body[_EXPLICIT_BYTES:], aad)
        except InvalidTag:
            return None
        if not record.cid:
            return record.kind, plain
        plain = plain.rstrip(b"\0")  # padding; the content type is before it
        return (plain[-1], plain[:-1]) if plain else None


def _cipher(suite: CipherSuite, key: bytes) -> AESCCM | AESGCM:
    return AESCCM(key, suite.tag_bytes) if suite.is_ccm else AESGCM(key)


def _framed(kind: int, number: int, cid: bytes, plain: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the head of a record without its length, what is authenticated beside it, and what is encrypted."""
    if not cid:
        head = struct.pack("!BHQ", kind, DTLS_1_2, number)
        return head, struct.pack("!QBHH", number, kind, DTLS_1_2, len(plain)), plain
    inner = plain + bytes([kind])
    return struct.pack("!BHQ", ContentType.CID, DTLS_1_2, number) + cid, _cid_aad(number, cid, len(inner)), inner


def _cid_aad(number: int, cid: bytes, size: int) -> bytes:
    """Return the additional data of a record with a connection id (RFC 9146, section 5.3)."""
    head = struct.pack("!BBBHQ", ContentType.CID, len(cid), ContentType.CID, DTLS_1_2, number)
    return _CID_PREFIX + head + cid + size.to_bytes(2)
