"""One client's socket."""

import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
from collections.abc import Callable
from typing import Protocol

from fogline_edge.adapters.http.codec import HttpCodec
from fogline_edge.adapters.http.request_loop import HttpContext, OnRead, RequestLoop
from fogline_edge.adapters.http.wire import HttpRefused, problem
from fogline_edge.adapters.send_limit import SendLimit
from fogline_edge.machine.boot import beacon

READ_BYTES = 16_384
"""Bytes that are read from a socket at once."""
WRITE_BUFFER_BYTES = 65_536
"""Bytes that wait for a client that does not read. Beyond that it is not served any further."""
LINGER_S = 1.0
"""Time limit for a client to read the last response."""
COMMAND_READ_S = 10.0
"""Time limit for a client to read a command and close the connection."""
_BUFFER = memoryview(bytearray(READ_BYTES))  # one for all: bytes are copied out of it before the next read
_TOO_MANY = HttpRefused(503, "too-many-connections", "there are too many connections", (("retry-after", "5"),))


class HttpConnectionOwner(HttpContext, Protocol):
    """The listener, as a connection sees it."""

    def joined(self, connection: "HttpConnection", host: str) -> bool:
        """Add a new socket. Returns False if there is no room for it."""

    def waits(self, connection: "HttpConnection", *, waits: bool) -> None:
        """Note whether the connection waits for its client. If there are too many, one that waits makes room."""

    def gone(self, connection: "HttpConnection") -> None:
        """Remove the closed socket."""


class HttpConnection(asyncio.BufferedProtocol):
    """One client's socket. `ending`: the last response is written, and the socket lingers until the client has read it.

    `stalled`: the client does not read.
    """

    limit: SendLimit
    _transport: asyncio.Transport
    _requests: RequestLoop

    def __init__(self, owner: HttpConnectionOwner) -> None:
        self.ending = False
        self.stalled = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._on_read: OnRead | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the accepted socket up."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.limit = SendLimit(transport, beacon)
        host = (transport.get_extra_info("peername") or [""])[0]
        self._requests = RequestLoop(self._owner, self, host)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._owner.joined(self, host):
            self.set_timer(self._owner.settings.request_timeout_s, self._requests.timed_out)
        else:
            self.write(HttpCodec().encode(problem(_TOO_MANY), last=True)[0])
            self.end(None)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface
        """See `asyncio.BufferedProtocol.get_buffer`."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes. After the end they are discarded: a reset would destroy the last response on its way out."""
        if not self.ending:
            self._requests.receive(bytes(_BUFFER[:nbytes]))

    def eof_received(self) -> bool:
        """Note that the client sends nothing more. Returns True while a response is due."""
        if self.ending:
            self._was_read(read=_acknowledged(self._transport))
            return False
        self._requests.receive_eof()
        return not self._transport.is_closing()

    def pause_writing(self) -> None:
        """Serve no further request of a client that does not read its responses."""
        self.stalled = True

    def resume_writing(self) -> None:
        """Continue: the client reads again."""
        self.stalled = False
        self._loop.call_soon(self._requests.go_on)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the interface
        """Clean up after the closed socket, whichever side closed it."""
        self.ending = True
        self._was_read(read=False)
        if self._timer is not None:
            self._timer.cancel()
        self.limit.close()
        self._requests.close()
        self._owner.gone(self)

    def leave(self) -> None:
        """Close, after the last response was sent. A client whose request is not answered sends it again."""
        if self._requests.serving is not None or self._on_read is not None or self.stalled:
            self.limit.discard()
        else:
            self._transport.close()

    def waits(self, *, waits: bool) -> None:
        """See `RequestSocket.waits`."""
        self._owner.waits(self, waits=waits)
        if not waits and self._timer is not None:
            self._timer.cancel()

    def write(self, data: bytes) -> None:
        """See `RequestSocket.write`."""
        if data:
            self._transport.write(data)

    def end(self, on_read: OnRead | None) -> None:
        """See `RequestSocket.end`."""
        self.ending = True
        self._on_read = on_read
        self.waits(waits=False)
        self.read(more=True)
        with contextlib.suppress(OSError):  # the client has cut the connection, and the loop has not noticed yet
            self._transport.write_eof()
        self.set_timer(LINGER_S if on_read is None else COMMAND_READ_S, self.limit.discard)

    def set_timer(self, delay_s: float, call: Callable[[], None]) -> None:
        """See `RequestSocket.set_timer`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, call)

    def read(self, *, more: bool) -> None:
        """See `RequestSocket.read`."""
        if more:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _was_read(self, *, read: bool) -> None:
        on_read, self._on_read = self._on_read, None
        if on_read is not None:
            on_read(read)


def _acknowledged(transport: asyncio.Transport) -> bool:
    """Return True if the client's TCP has acknowledged all bytes sent, without the FIN (tcp(7), SIOCOUTQ)."""
    raw: socket.socket = transport.get_extra_info("socket")
    try:
        unacknowledged = fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):  # the socket is closed
        return False
    return int.from_bytes(unacknowledged, sys.byteorder) <= 1 and not transport.get_write_buffer_size()
