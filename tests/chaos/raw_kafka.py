"""Three requests of Kafka's own protocol, to leave a transaction hanging: librdkafka would not do it.

Formats: Kafka protocol guide, InitProducerId v0, Produce v3, record batch v2.
"""

import socket
import struct
import time
from dataclasses import dataclass
from typing import Self

_PRODUCE, _INIT_PRODUCER_ID = 0, 22
_NOT_LEADER = 6
_CONCURRENT_TRANSACTIONS = 51
_TRANSACTIONAL = 0x10
_CASTAGNOLI = 0x82F63B78


class RawKafka:
    """A connection to a broker; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 10)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def become(self, transactional_id: str) -> "Identity":
        """Fence whoever has the id, and be the producer of that name."""
        deadline, error = time.monotonic() + 60, _CONCURRENT_TRANSACTIONS
        while error == _CONCURRENT_TRANSACTIONS and time.monotonic() < deadline:  # the former one is still being ended
            answer = self._ask(_INIT_PRODUCER_ID, 0, _string(transactional_id) + struct.pack(">i", 15_000))
            _, error, number, epoch = struct.unpack_from(">ihqh", answer)
        assert error == 0, f"InitProducerId: error {error}"
        return Identity(transactional_id, number, epoch)

    def write(self, who: "Identity", topic: str, partition: int, records: list["Record"], sequence: int = 0) -> None:
        """Append records of a transaction that the coordinator is not told of: nobody will ever write its marker."""
        batch = _batch(who, records, sequence)
        body = _string(who.transactional_id) + struct.pack(">hii", -1, 10_000, 1) + _string(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        deadline, error = time.monotonic() + 60, _NOT_LEADER
        while error == _NOT_LEADER and time.monotonic() < deadline:  # of a topic that was created just now
            answer = self._ask(_PRODUCE, 3, body)
            (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
        assert error == 0, f"Produce to {topic}[{partition}]: error {error}"

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        self._correlation += 1
        request = struct.pack(">hhi", key, version, self._correlation) + _string("raw") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(length)
        assert struct.unpack_from(">i", answer) == (self._correlation,)
        return answer[4:]

    def _receive(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self._socket.recv(count - len(found))
            assert piece, "the broker closed the connection"
            found += piece
        return found


@dataclass(frozen=True, slots=True)
class Identity:
    """A transactional producer, as brokers know it."""

    transactional_id: str
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record, as `_batch` writes it."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def _batch(who: Identity, records: list[Record], sequence: int) -> bytes:
    now_ms = int(time.time() * 1000)
    last = len(records) - 1
    body = struct.pack(">hiqqqhii", _TRANSACTIONAL, last, now_ms, now_ms, who.number, who.epoch, sequence, len(records))
    body += b"".join(_record(place, each) for place, each in enumerate(records))
    checked = struct.pack(">I", _crc32c(body)) + body
    return struct.pack(">qiib", 0, 4 + 1 + len(checked), -1, 2) + checked


def _record(place: int, record: Record) -> bytes:
    body = b"\0" + _varint(0) + _varint(place) + _bytes(record.key) + _bytes(record.value) + _varint(len(record.headers))
    body += b"".join(_bytes(name.encode()) + _bytes(value) for name, value in record.headers)
    return _varint(len(body)) + body


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _bytes(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(number: int) -> bytes:
    """Zigzag, 7 bits a byte."""
    rest, found = number << 1 if number >= 0 else ~(number << 1), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def _crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720, appendix B.4)."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (_CASTAGNOLI if register & 1 else 0)
    return register ^ 0xFFFFFFFF
