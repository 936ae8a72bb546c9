"""Records and handshake messages of DTLS 1.2, and their encoding (RFC 6347, section 4; RFC 9146, section 4)."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from fogline.errors import Poison

DTLS_1_0 = 0xFEFF
DTLS_1_2 = 0xFEFD
CID_BYTES = 8
"""Length of the connection ids that the gateway gives out: all have one, so that records can be read (RFC 9146, section 4)."""
MAX_MESSAGE_BYTES = 2048
"""Longest handshake message of a client. A ClientHello with a pre-shared key needs some 200 bytes."""
_RECORD_BYTES = 13
_HEAD = struct.Struct("!BHQ")
_MESSAGE_BYTES = 12


class ContentType(IntEnum):
    """Content types of records."""

    CHANGE_CIPHER_SPEC = 20
    ALERT = 21
    HANDSHAKE = 22
    APPLICATION_DATA = 23
    CID = 25


class HandshakeType(IntEnum):
    """Types of handshake messages."""

    CLIENT_HELLO = 1
    SERVER_HELLO = 2
    HELLO_VERIFY_REQUEST = 3
    SERVER_KEY_EXCHANGE = 12
    SERVER_HELLO_DONE = 14
    CLIENT_KEY_EXCHANGE = 16
    FINISHED = 20


class Alert(IntEnum):
    """Descriptions of alerts (RFC 5246, section 7.2; RFC 4279, section 6)."""

    CLOSE_NOTIFY = 0
    UNEXPECTED_MESSAGE = 10
    HANDSHAKE_FAILURE = 40
    ILLEGAL_PARAMETER = 47
    DECODE_ERROR = 50
    DECRYPT_ERROR = 51
    PROTOCOL_VERSION = 70
    NO_RENEGOTIATION = 100


class DtlsFormatError(Poison):
    """Bytes that are not DTLS."""

    def __init__(self, what: str) -> None:
        super().__init__("malformed", what)


class Record(NamedTuple):
    """One record. `number`: epoch and sequence number as one, 16 and 48 bits. `cid`: empty without a connection id."""

    kind: int
    version: int
    number: int
    cid: bytes
    body: bytes

    @property
    def epoch(self) -> int:
        """The epoch: 0 before the keys count, 1 after that."""
        return self.number >> 48

    @property
    def sequence(self) -> int:
        """The sequence number within the epoch."""
        return self.number & 0xFFFF_FFFF_FFFF


class Fragment(NamedTuple):
    """A handshake message, or a part of one that begins at `offset`."""

    kind: int
    length: int
    sequence: int
    offset: int
    body: bytes


class DtlsReader:
    """Reads fields from the front of bytes. Raises `DtlsFormatError` if they are too short."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_done(self) -> bool:
        """True if nothing is left."""
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise DtlsFormatError("a message is shorter than it says")
        found, self._at = self._data[self._at : end], end
        return found

    def number(self, size: int) -> int:
        """Return the next number, of `size` bytes."""
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        """Return the next vector, which begins with its length in `size` bytes."""
        return self.take(self.number(size))

    def end(self) -> None:
        """Raise `DtlsFormatError` if something is left."""
        if not self.is_done:
            raise DtlsFormatError("a message is longer than it says")


def vector(data: bytes, size: int) -> bytes:
    """Return a vector: the length of `data` in `size` bytes, and `data`."""
    return len(data).to_bytes(size) + data


def is_record(datagram: bytes) -> bool:
    """Return True if a datagram begins as DTLS does. CoAP never does: its version 1 makes the first byte 64 or more."""
    return len(datagram) >= _RECORD_BYTES and 20 <= datagram[0] <= 25 and datagram[1] == 0xFE


def records_of(datagram: bytes) -> list[Record]:
    """Return the records of a datagram. The rest of it is discarded from an invalid one on (RFC 6347, section 4.1.2.7)."""
    found: list[Record] = []
    at, size = 0, len(datagram)
    while at + _RECORD_BYTES <= size:
        kind, version, number = _HEAD.unpack_from(datagram, at)
        body = at + _RECORD_BYTES + (CID_BYTES if kind == ContentType.CID else 0)
        end = body + int.from_bytes(datagram[body - 2 : body])
        if end > size or body > size or not 20 <= kind <= 25:
            break
        found.append(Record(kind, version, number, datagram[at + 11 : body - 2], datagram[body:end]))
        at = end
    return found


def plain_record(kind: int, sequence: int, body: bytes, version: int = DTLS_1_2) -> bytes:
    """Return a record of epoch 0."""
    return bytes([kind]) + version.to_bytes(2) + sequence.to_bytes(8) + vector(body, 2)


def alert(description: Alert) -> bytes:
    """Return the body of an alert: `close_notify` and `no_renegotiation` are warnings, the others are fatal."""
    is_warning = description in (Alert.CLOSE_NOTIFY, Alert.NO_RENEGOTIATION)
    return bytes([1 if is_warning else 2, description])


def handshake_message(kind: int, sequence: int, body: bytes) -> bytes:
    """Return a handshake message in one fragment."""
    length = len(body).to_bytes(3)
    return bytes([kind]) + length + sequence.to_bytes(2) + bytes(3) + length + body


def fragments_of(body: bytes) -> Iterator[Fragment]:
    """Yield the messages, or parts of one, of a handshake record. Raises `DtlsFormatError`."""
    reader = DtlsReader(body)
    while not reader.is_done:
        kind, length, sequence = reader.number(1), reader.number(3), reader.number(2)
        offset, size = reader.number(3), reader.number(3)
        if length > MAX_MESSAGE_BYTES or offset + size > length:
            raise DtlsFormatError(f"a handshake message of {length} bytes is too long, or its fragment is not within it")
        yield Fragment(kind, length, sequence, offset, reader.take(size))
