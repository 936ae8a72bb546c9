"""Bytes to whole packets, however the stream is cut. Nothing is buffered that could never become a packet here."""

from fogline_edge.adapters.mqtt.wire import Kind, MalformedPacket, ProtocolError, Reason

_RESERVED = {kind: 0x02 if kind in (Kind.PUBREL, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE) else 0x00 for kind in Kind}
_HEADERS = frozenset(
    header
    for header in range(0x10, 0x100)
    if (header >> 4 == Kind.PUBLISH and header & 0x06 != 0x06)
    or (header >> 4 != Kind.PUBLISH and header & 0x0F == _RESERVED[Kind(header >> 4)])
)
"""The first bytes that a packet may have: known type, reserved flags as they must be (5: 2.1.3), no QoS 3."""

_MAX_LENGTH_BYTES = 4


class Framer:
    """The incremental half of the decoder. `first`: the kind that the first packet must be.

    `feed` what arrived, then call `next_packet` until it returns `None`; or stop between two packets and go on later.
    At most `max_packet_bytes` (a whole packet, 5: 3.1.2.11.4) and what was fed at once is held.
    """

    __slots__ = ("_at", "_data", "_first", "_max", "_need", "_tail")

    def __init__(self, max_packet_bytes: int, first: Kind | None = Kind.CONNECT) -> None:
        self._max = max_packet_bytes
        self._first = first
        self._data = b""
        self._at = 0
        self._tail = bytearray()
        self._need = 0

    @property
    def unfinished(self) -> bool:
        """Whether a packet has begun that is not whole."""
        return bool(self._tail) or self._at < len(self._data)

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        if self._at == len(self._data) and not self._tail:
            self._data = data
            self._at = 0
        else:
            self._tail += data

    def next_packet(self) -> tuple[int, bytes] | None:
        """The next packet as (first byte, body), or `None` if it is not whole yet. Raises `PacketError`."""
        while True:
            data, at = self._data, self._at
            available = len(data) - at
            if available >= 2:
                length, start = self._length(data, at)
                end = start + length
                if start and end <= len(data):
                    self._at = end
                    return data[at], data[start:end]
                need = end - at if start else available + 1
            else:
                need = max(self._need, 2) if not available else 2
                if available:
                    self._check_header(data[at])
            if not self._refill(need):
                return None

    def _length(self, data: bytes, at: int) -> tuple[int, int]:
        """The remaining length of the packet at `at`, and where its body starts (0: not known yet)."""
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
        if start - at + length > self._max:
            raise ProtocolError(f"a packet has more than {self._max} bytes", Reason.PACKET_TOO_LARGE)
        self._first = None
        return length, start

    def _check_header(self, header: int) -> None:
        if header not in _HEADERS:
            raise MalformedPacket(f"no packet begins with 0x{header:02x}")
        if self._first is not None and header >> 4 != self._first:
            raise ProtocolError(f"the first packet is {Kind(header >> 4).name}, not {self._first.name}")

    def _refill(self, need: int) -> bool:
        """Move what is left to the tail; take the tail back once it holds `need` bytes."""
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
