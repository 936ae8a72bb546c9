"""A WebSocket client made of bytes (RFC 6455), between a TCP or TLS connection and `MqttWire`."""

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The server's answer to `KEY`: the example of RFC 6455, section 1.3."""
MASK = b"\x12\x34\x56\x78"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIELDS = {
    "Host": "127.0.0.1:8083",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def opening(path: str = "/mqtt", method: str = "GET", **changes: str | None) -> bytes:
    """Return the request of a handshake. `changes`: fields by name, `_` for `-`; None leaves one out."""
    fields: Mapping[str, str | None] = {**FIELDS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes | None = MASK, reserved: int = 0) -> bytes:
    """Return a frame of a client (RFC 6455, section 5.2)."""
    head = bytes([fin << 7 | reserved << 4 | opcode])
    masked, size = 0x80 if mask is not None else 0, len(payload)
    if size < 126:
        head += bytes([masked | size])
    elif size < 65_536:
        head += bytes([masked | 126]) + struct.pack("!H", size)
    else:
        head += bytes([masked | 127]) + struct.pack("!Q", size)
    if mask is None:
        return head + payload
    key = (mask * (size // 4 + 1))[:size]
    return head + mask + (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")


async def open_websocket(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> "WebSocketPipe":
    """Open a WebSocket on a connection."""
    writer.write(opening())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert head.startswith("HTTP/1.1 101 "), head
    assert f"sec-websocket-accept: {ACCEPT.lower()}" in head.lower()
    assert "sec-websocket-protocol: mqtt\r\n" in head.lower()
    return WebSocketPipe(reader, writer)


class WebSocketPipe:
    """What `MqttWire` needs of a reader and a writer, in binary frames. `closed`: the code of the server's Close."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.transport = writer.transport
        self.pongs: list[bytes] = []
        self.closed: int | None = None

    def write(self, data: bytes) -> None:
        """Send one binary frame."""
        self.writer.write(frame(BINARY, data))

    async def drain(self) -> None:
        """See `asyncio.StreamWriter.drain`."""
        await self.writer.drain()

    def get_extra_info(self, name: str) -> Any:
        """See `asyncio.StreamWriter.get_extra_info`."""
        return self.writer.get_extra_info(name)

    async def read(self, _limit: int = 0) -> bytes:
        """Return the payload of the next binary frame; nothing after the server's Close, which it answers, or the end."""
        while True:
            try:
                opcode, payload = await self._frame()
            except asyncio.IncompleteReadError:
                return b""
            if opcode == BINARY:
                return payload
            if opcode == PONG:
                self.pongs.append(payload)
            elif opcode == CLOSE:
                self.closed = int.from_bytes(payload[:2], "big")
                self.writer.write(frame(CLOSE, payload[:2]))
                return b""

    async def _frame(self) -> tuple[int, bytes]:
        first, second = await self.reader.readexactly(2)
        assert first & 0xF0 == 0x80, "the server fragments, or uses an extension"
        assert second < 0x80, "the server masks"
        size = second
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)
