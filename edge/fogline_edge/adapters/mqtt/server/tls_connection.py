"""A client's socket that speaks TLS. The handshake has a part of the time until CONNECT, and counts as a connection."""

import asyncio
import ssl
from typing import Any

from fogline.transport.tls import Tls, TlsError
from fogline_edge.adapters.mqtt.server.connection import ClientConnection, ConnectionOwner
from fogline_edge.adapters.mqtt.session.effects import Close, CloseReason


class TlsTransport(asyncio.Transport):
    """Encrypts for one socket. It keeps no bytes: what it has not given to the socket's transport does not exist."""

    def __init__(self, tls: Tls, transport: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """See `asyncio.WriteTransport.write`."""
        try:
            self._transport.write(self._tls.wrap(bytes(data)))
        except TlsError:
            self._transport.abort()

    def flush(self) -> None:
        """Send what TLS itself has to say: its handshake, or an alert."""
        if data := self._tls.data_to_send():
            self._transport.write(data)

    def write_eof(self) -> None:
        """Say that nothing follows, in TLS and in TCP."""
        self._say_last()
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """See `asyncio.WriteTransport.can_write_eof`."""
        return self._transport.can_write_eof()

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        self._say_last()
        self._transport.close()

    def _say_last(self) -> None:
        self._tls.close()
        self.flush()

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport.pause_reading`."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport.resume_reading`."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport.get_write_buffer_size`: encrypted bytes."""
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport.set_write_buffer_limits`."""
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.BaseTransport.get_extra_info`."""
        return self._transport.get_extra_info(name, default)


class TlsConnection(ClientConnection):
    """One client's socket with TLS between it and the state machine."""

    _encrypting: TlsTransport

    def __init__(self, owner: ConnectionOwner, context: ssl.SSLContext) -> None:
        super().__init__(owner)
        self._tls = Tls(context, server=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the accepted socket up."""
        assert isinstance(transport, asyncio.Transport)
        self._encrypting = TlsTransport(self._tls, transport)
        super().connection_made(self._encrypting)

    def receive(self, data: bytes) -> None:
        """Decrypt received bytes. A peer that speaks no TLS, or whose certificate is refused, is told so by an alert."""
        if self.ending:
            return
        ready = self._tls.ready
        try:
            plain = self._tls.receive(data)
        except TlsError as error:
            self._encrypting.flush()
            reason = CloseReason.REFUSED if self.protocol.key is None else CloseReason.MALFORMED
            self.finish(Close(b"", reason, str(error)))
            return
        self._encrypting.flush()
        if self._tls.ready and not ready:
            self.protocol.certificate = self._tls.peer_names()
        if plain:
            super().receive(plain)

    def _timed_out(self) -> None:
        if self._tls.ready:
            super()._timed_out()
        else:
            self.finish(Close(b"", CloseReason.TIMED_OUT, "the TLS handshake did not end in time"))
