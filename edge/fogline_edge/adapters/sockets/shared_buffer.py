"""Reads the sockets of all connections into one buffer, no more of each than the connection has room for."""

import asyncio
from abc import abstractmethod
from typing import Final, Protocol

READ_BYTES: Final = 65_536
"""Bytes that are read from a socket at once, at most."""
_BUFFER = memoryview(bytearray(READ_BYTES))  # bytes are copied out of it before the next read


class Room(Protocol):
    """What limits the bytes that are read."""

    @property
    def room_bytes(self) -> int:
        """The bytes that may be read now, at least one."""


class SharedBufferProtocol(asyncio.BufferedProtocol):
    """A protocol whose bytes come to `receive`, as many at once as `reader` has room for."""

    reader: Room

    @abstractmethod
    def receive(self, data: bytes) -> None:
        """Handle received bytes."""

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface
        """See `asyncio.BufferedProtocol.get_buffer`."""
        return _BUFFER[: self.reader.room_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol.buffer_updated`."""
        self.receive(bytes(_BUFFER[:nbytes]))
