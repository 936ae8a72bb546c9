"""Splits a byte stream into whole packets, and rejects bytes that cannot begin one before it buffers them."""

from fogline.transport.tls import TLS_HANDSHAKE
from fogline_edge.adapters.mqtt.protocol.primitives import MalformedPacket, PacketType, ProtocolError, Reason

_FLAGGED = (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_HEADERS = {kind << 4 | (0x02 if kind in _FLAGGED else 0x00) for kind in PacketType if kind}  # 5: 2.1.3
_HEADERS |= {header for header in range(0x30, 0x40) if header & 0x06 != 0x06}  # any PUBLISH but at QoS 3
_MAX_LENGTH_BYTES = 4


class Framer:
    """The incremental half of the decoder. `first`: the required type of the first packet, or `None` for any.

    Call `feed`, then `next_packet` until it returns `None`, at once or later. The framer holds at most `max_packet_bytes` (a
    whole packet, 5: 3.1.2.11.4; it may be raised between packets) and the last bytes fed.

    A PUBLISH of more than `max_packet_bytes`, and at most `max_publish_bytes`, comes in pieces: `next_packet` returns its
    beginning, and then `rest` bytes come by `next_piece`.
    """

    __slots__ = ("_at", "_data", "_first", "_need", "_tail", "max_packet_bytes", "max_publish_bytes", "rest")

    def __init__(self, max_packet_bytes: int, first: PacketType | None = PacketType.CONNECT) -> None:
        self.max_packet_bytes = max_packet_bytes
        self.max_publish_bytes = 0
        self.rest = 0
        self._first = first
        self._data = b""
        self._at = 0
        self._tail = bytearray()
        self._need = 0

    @property
    def unfinished(self) -> bool:
        """Return True if the framer holds the beginning of an incomplete packet."""
        return bool(self.rest or self._tail) or self._at < len(self._data)

    @property
    def held_bytes(self) -> int:
        """The bytes that the framer keeps: of an incomplete packet, and of packets that nobody has asked for yet."""
        return len(self._tail) + (len(self._data) if self._at < len(self._data) else 0)

    def clear(self) -> None:
        """Drop all bytes: nobody asks for another packet."""
        self._data, self._at, self._need, self.rest = b"", 0, 0, 0
        self._tail.clear()

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if self._at == len(self._data) and not self._tail:
            self._data = data
            self._at = 0
        else:
            self._tail += data

    def next_packet(self) -> tuple[int, bytes] | None:
        """Return the next packet as (first byte, body), or `None` if it is incomplete. Raises `PacketError`.

        If `rest` is not 0 then, it is the beginning of a packet; `next_piece` must be called until `rest` is 0.
        """
        while True:
            data, at = self._data, self._at
            available = len(data) - at
            if available >= 2:
                length, start = self._length(data, at)
                end = start + length
                over = end - at - self.max_packet_bytes if start else 0
                if over > 0:
                    end -= over
                if start and end <= len(data):
                    self._at, self.rest = end, max(0, over)
                    return data[at], data[start:end]
                need = end - at if start else available + 1
            else:
                need = max(self._need, 2) if not available else 2
                if available:
                    self._check_header(data[at])
            if not self._refill(need):
                return None

    def next_piece(self) -> bytes | None:
        """Return the next bytes of a packet that comes in pieces, b"" if none have come; None if there is no such packet."""
        if not self.rest:
            return None
        if self._at == len(self._data) and self._tail:
            self._data, self._at = bytes(self._tail), 0
            self._tail.clear()
        piece = self._data[self._at : self._at + self.rest]
        self._at += len(piece)
        self.rest -= len(piece)
        return piece

    def _length(self, data: bytes, at: int) -> tuple[int, int]:
        """Return the remaining length (5: 2.1.4) of the packet at `at`, and the offset of its body (0: not known yet)."""
        header = data[at]
        if header not in _HEADERS or self._first is not None:
            self._check_header(header)
        length = data[at + 1]
        start = at + 2
        if length > 0x7F:
            length &= 0x7F
            for shift in (7, 14, 21):
                if start == len(data):
                    return 0, 0
                byte = data[start]
                start += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                raise MalformedPacket(f"a remaining length has more than {_MAX_LENGTH_BYTES} bytes")
        size = start - at + length
        if size > self.max_packet_bytes and (header >> 4 != PacketType.PUBLISH or size > self.max_publish_bytes):
            most = max(self.max_packet_bytes, self.max_publish_bytes)
            raise ProtocolError(f"a packet has more than {most} bytes", Reason.PACKET_TOO_LARGE)
        self._first = None
        return length, start

    def _check_header(self, header: int) -> None:
        if header == TLS_HANDSHAKE and self._first is not None:
            raise MalformedPacket("the client speaks TLS, and this port does not")
        if header not in _HEADERS:
            raise MalformedPacket(f"no packet begins with 0x{header:02x}")
        if self._first is not None and header >> 4 != self._first:
            raise ProtocolError(f"the first packet is {PacketType(header >> 4).name} instead of {self._first.name}")

    def _refill(self, need: int) -> bool:
        """Move the unread bytes to the tail; take the tail back once it holds `need` bytes."""
        if self._at < len(self._data):
            self._tail[:0] = self._data[self._at :]
        self._data = b""
        self._at = 0
        self._need = need
        if len(self._tail) < need:
            return False
        self._data = bytes(self._tail)
        self._tail.clear()
        self._need = 0
        return True
