"""A connection with layers below it, such as TLS, and the transport of a layer.

A layer is the protocol of the transport below it, and has a transport of its own for the connection above. So a connection
is the same with and without layers.
"""

import asyncio
from abc import abstractmethod
from typing import Any

from fogline.transport.certificate_names import CertificateNames
from fogline_edge.adapters.sockets.shared_buffer import SharedBufferProtocol


class LayeredConnection(SharedBufferProtocol):
    """A connection that may have layers below it.

    `handshake`: the name of the layer's handshake that has not ended, else empty. Set before `connection_made`.
    """

    handshake: str = ""

    @abstractmethod
    def secured(self, names: CertificateNames | None) -> None:
        """Note that the TLS handshake has ended. `names`: those of the peer's verified certificate."""

    @abstractmethod
    def refuse(self, why: str) -> None:
        """End the connection, because the peer cannot speak the layer's protocol, or may not. The layer has told the peer."""


class LayerTransport(asyncio.Transport):
    """The transport of a layer. What a subclass does not change goes to the transport below."""

    def __init__(self, below: asyncio.Transport) -> None:
        super().__init__()
        self.below = below

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport.write`."""
        self.below.write(data)

    def write_eof(self) -> None:
        """See `asyncio.WriteTransport.write_eof`."""
        self.below.write_eof()

    def can_write_eof(self) -> bool:
        """See `asyncio.WriteTransport.can_write_eof`."""
        return self.below.can_write_eof()

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        self.below.close()

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        self.below.abort()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self.below.is_closing()

    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport.is_reading`."""
        return self.below.is_reading()

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport.pause_reading`."""
        self.below.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport.resume_reading`."""
        self.below.resume_reading()

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport.get_write_buffer_size`: bytes as they go to the socket."""
        return self.below.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport.set_write_buffer_limits`."""
        self.below.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport.get_extra_info`."""
        return self.below.get_extra_info(name, default)
