"""AMQP 1.0 frames made by hand, for peers that do what no library does (OASIS AMQP 1.0 part 1 and 2)."""

import asyncio
import struct

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
NULL = b"\x40"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER, SASL_INIT = 0x10, 0x11, 0x12, 0x13, 0x14, 0x41
SOURCE, TARGET = 0x28, 0x29
APPLICATION_PROPERTIES, DATA = 0x74, 0x75


def text(value: str) -> bytes:
    """Encode a string of at most 255 bytes."""
    return b"\xa1" + bytes([len(value)]) + value.encode()


def symbol(value: str) -> bytes:
    """Encode a symbol of at most 255 bytes."""
    return b"\xa3" + bytes([len(value)]) + value.encode()


def uint(value: int) -> bytes:
    """Encode an unsigned integer of 32 bits."""
    return b"\x70" + struct.pack(">I", value)


def listed(*items: bytes) -> bytes:
    """Encode a list of encoded items."""
    body = b"".join(items)
    return b"\xd0" + struct.pack(">II", len(body) + 4, len(items)) + body


def mapped(key: bytes, value: bytes) -> bytes:
    """Encode a map with one encoded key and value."""
    return b"\xd1" + struct.pack(">II", len(key) + len(value) + 4, 2) + key + value


def described(code: int, value: bytes) -> bytes:
    """Put a descriptor before an encoded value."""
    return b"\x00\x53" + bytes([code]) + value


def deep(depth: int) -> bytes:
    """Encode a list within a list, `depth` levels deep."""
    heads, inner = [], 1
    for _ in range(depth):
        heads.append(b"\xd0" + struct.pack(">II", inner + 4, 1))
        inner += 9
    return b"".join(reversed(heads)) + NULL


def frame(code: int, *items: bytes, payload: bytes = b"", sasl: bool = False) -> bytes:
    """Return a frame on channel 0 with a performative of encoded fields, and a payload."""
    body = described(code, listed(*items)) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, int(sasl), 0) + body


def opening(container: str, *properties: bytes) -> bytes:
    """Return everything up to the open frame. `properties`: the encoded map of the open frame, or nothing."""
    hello = SASL + frame(SASL_INIT, symbol("ANONYMOUS"), sasl=True) + AMQP
    rest = [NULL] * 8 if properties else []
    return hello + frame(OPEN, text(container), *rest, *properties)


def attaching(address: str, *properties: bytes) -> bytes:
    """Return a begin frame, and the attach frame of a sending link to `address` on handle 0."""
    session = frame(BEGIN, NULL, uint(0), uint(2**31 - 1), uint(2**31 - 1))
    rest = [NULL] * 2 + [uint(0)] + [NULL] * 3 if properties else [NULL, NULL, uint(0)]
    ends = described(SOURCE, listed(text("here"))), described(TARGET, listed(text(address)))
    return session + frame(ATTACH, text("raw"), uint(0), b"\x42", NULL, NULL, *ends, *rest, *properties)


def transfer(payload: bytes, *, first: bool, more: bool, number: int = 0) -> bytes:
    """Return a transfer frame with a piece of a message on handle 0. `number`: of the delivery."""
    head = [uint(number), b"\xa0\x01a", uint(0), b"\x42"] if first else [NULL] * 4
    return frame(TRANSFER, uint(0), *head, b"\x41" if more else b"\x42", payload=payload)


class RawAmqp:
    """A socket to an AMQP port. `came`: all bytes that the peer has sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came = bytearray()
        self._reader = reader
        self._writer = writer

    @classmethod
    async def dial(cls, port: int) -> "RawAmqp":
        """Connect to a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    @classmethod
    async def linked(cls, port: int, address: str) -> "RawAmqp":
        """Connect, attach a link to `address` and wait for credit."""
        raw = await cls.dial(port)
        await raw.send(opening("evil") + attaching(address))
        await raw.until(b"\x00S" + bytes([FLOW]))
        return raw

    @property
    def ended(self) -> bool:
        """True if the peer has closed, as far as was read."""
        return self._reader.at_eof()

    async def send(self, data: bytes) -> None:
        """Write bytes, and wait until the socket takes them."""
        self._writer.write(data)
        await self._writer.drain()

    async def until(self, what: bytes) -> None:
        """Read until `what` has come. Raises `AssertionError` if the connection ends before."""
        while what not in self.came:
            data = await self._reader.read(65_536)
            assert data, f"{what!r} has not come before the end: {bytes(self.came[-300:])!r}"
            self.came += data

    async def end(self) -> bytes:
        """Read until the peer closes; returns everything."""
        try:
            while data := await self._reader.read(65_536):
                self.came += data
        except ConnectionResetError:
            pass
        return bytes(self.came)

    def close(self) -> None:
        """Close the socket."""
        self._writer.close()
