"""The last response on a connection, and whether its client has read it."""

import asyncio
import contextlib

from fogline_edge.adapters.http.request_loop import OnRead
from fogline_edge.adapters.sockets.send_queue import unacknowledged_bytes
from fogline_edge.adapters.sockets.tls_layer import TlsTransport

CLOSE_NOTIFY_S = 1.0
"""Time for a client to close a TLS connection by itself after a command.

A client that closes while it has unread bytes resets the connection. The close_notify of TLS (RFC 8446, section 6.1) is such
bytes, as the FIN of TCP is not, and after a reset nobody knows whether the client has read the command.
"""


class LastResponse:
    """Tells `on_read` once whether the client has read the response that a connection ends with."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._on_read: OnRead | None = None
        self._end: asyncio.TimerHandle | None = None

    @property
    def awaited(self) -> bool:
        """True while somebody waits for what the client does."""
        return self._on_read is not None

    def written(self, on_read: OnRead | None) -> None:
        """Send nothing more. `on_read` gets True if the client has read all and closed the connection, else False."""
        self._on_read = on_read
        if on_read is not None and isinstance(self._transport, TlsTransport):
            self._end = asyncio.get_running_loop().call_later(CLOSE_NOTIFY_S, self._write_eof)
        else:
            self._write_eof()

    def client_closed(self) -> None:
        """Note that the client has closed its side: it has read all that its TCP has acknowledged (but the FIN)."""
        unacknowledged = unacknowledged_bytes(self._transport)
        self._tell(read=unacknowledged is not None and unacknowledged <= 1)

    def lost(self) -> None:
        """Note that the connection is gone."""
        self._tell(read=False)

    def _write_eof(self) -> None:
        with contextlib.suppress(OSError):  # the client has cut the connection, and the loop has not noticed yet
            self._transport.write_eof()

    def _tell(self, *, read: bool) -> None:
        if self._end is not None:
            self._end.cancel()
        on_read, self._on_read = self._on_read, None
        if on_read is not None:
            on_read(read)
