"""TLS between a socket and a connection. The connection exists from the first byte of the handshake on, so it is counted."""

import asyncio
import ssl

from fogline.transport.tls import Tls, TlsError
from fogline_edge.adapters.sockets.layer import LayeredConnection, LayerTransport
from fogline_edge.adapters.sockets.shared_buffer import SharedBufferProtocol


class TlsTransport(LayerTransport):
    """Encrypts for one socket. It keeps no bytes: what it has not given to the socket's transport does not exist."""

    def __init__(self, tls: Tls, below: asyncio.Transport) -> None:
        super().__init__(below)
        self._tls = tls

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport.write`."""
        try:
            self.below.write(self._tls.wrap(bytes(data)))
        except TlsError:
            self.below.abort()

    def flush(self) -> None:
        """Send what TLS itself has to say: its handshake, or an alert."""
        if data := self._tls.data_to_send():
            self.below.write(data)

    def write_eof(self) -> None:
        """Say that nothing follows, in TLS and in TCP."""
        self._say_last()
        self.below.write_eof()

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        self._say_last()
        self.below.close()

    def _say_last(self) -> None:
        self._tls.close()
        self.flush()


class TlsLayer(SharedBufferProtocol):
    """Decrypts for `above`, which gets a `TlsTransport`. The time limit of the handshake is the connection's."""

    _transport: TlsTransport

    def __init__(self, context: ssl.SSLContext, above: LayeredConnection) -> None:
        self._tls = Tls(context, server=True)
        self._above = above
        self._ended = False  # the peer sends nothing more, or what is no TLS
        above.handshake = "TLS"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol.connection_made`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = TlsTransport(self._tls, transport)
        self._above.connection_made(self._transport)
        self.reader = self._above.reader  # a byte of TLS never holds more than a byte for the connection

    def receive(self, data: bytes) -> None:
        """Decrypt received bytes. A peer that speaks no TLS, or whose certificate is refused, is told so by an alert."""
        if self._ended:
            return
        was_ready = self._tls.ready
        try:
            plain = self._tls.receive(data)
        except TlsError as error:
            self._ended = True
            self._transport.flush()
            self._above.refuse(str(error))
            return
        self._transport.flush()
        if self._tls.ready and not was_ready:
            self._above.handshake = ""
            self._above.secured(self._tls.peer_names())
        if plain:
            self._above.receive(plain)
        if self._tls.peer_ended:
            self._ended = True
            if not self._above.eof_received():
                self._transport.close()

    def eof_received(self) -> bool | None:
        """See `asyncio.BufferedProtocol.eof_received`. The end may have come in TLS before."""
        self._ended = True
        return self._above.eof_received()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`."""
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        self._above.connection_lost(exc)
