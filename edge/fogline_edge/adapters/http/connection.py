"""One client's socket."""

import asyncio
import logging
import re
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

from fogline.process.log_throttle import LogThrottle
from fogline.transport.certificate_names import CertificateNames
from fogline_edge.adapters.http.last_response import LastResponse
from fogline_edge.adapters.http.request_loop import HttpContext, OnRead, RequestLoop
from fogline_edge.adapters.send_limit import SendLimit
from fogline_edge.adapters.sockets.layer import LayeredConnection
from fogline_edge.machine.boot import beacon

READ_BYTES = 16_384
"""Bytes that are read from a socket at once."""
WRITE_BUFFER_BYTES = 65_536
"""Bytes that wait for a client that does not read. Beyond that it is not served any further."""
LINGER_S = 1.0
"""Time limit for a client to read the last response."""
COMMAND_READ_S = 10.0
"""Time limit for a client to read a command and close the connection."""

_log = logging.getLogger(__name__)
_log.addFilter(LogThrottle(variable=re.compile(r" at \S+")))  # so that a flood of refused peers does not fill the disk


class HttpConnectionOwner(HttpContext, Protocol):
    """The listener, as a connection sees it."""

    def joined(self, connection: "HttpConnection", host: str) -> bool:
        """Add a new socket. Returns False if there is no room for it."""

    def waits(self, connection: "HttpConnection", *, waits: bool) -> None:
        """Note whether the connection waits for its client. If there are too many, one that waits makes room."""

    def gone(self, connection: "HttpConnection") -> None:
        """Remove the closed socket."""


class _Room:
    """Bounds of what is read: the requests bound what they keep."""

    room_bytes = READ_BYTES


class HttpConnection(LayeredConnection):
    """One client's socket. `ending`: the last response is written, and the socket lingers until the client has read it.

    `stalled`: the client does not read.
    """

    reader = _Room()
    limit: SendLimit
    _transport: asyncio.Transport
    _requests: RequestLoop
    _last: LastResponse

    def __init__(self, owner: HttpConnectionOwner) -> None:
        self.ending = False
        self.stalled = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_room = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the accepted socket up."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.limit = SendLimit(transport, beacon)
        self._last = LastResponse(transport)
        host = (transport.get_extra_info("peername") or [""])[0]
        self._requests = RequestLoop(self._owner, self, host)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._has_room = self._owner.joined(self, host)
        if self.handshake:
            late = partial(self.refuse, f"the {self.handshake} handshake did not end in time")
            self.set_timer(self._owner.settings.request_timeout_s, late)
        else:
            self._requests.begin(has_room=self._has_room)

    def secured(self, names: CertificateNames | None) -> None:
        """See `LayeredConnection.secured`."""
        self._requests.login.certificate = names
        self._requests.begin(has_room=self._has_room)

    def refuse(self, why: str) -> None:
        """See `LayeredConnection.refuse`."""
        if not self.ending:
            self._owner.counters.handshakes_refused += 1
            _log.info("the connection of a client at %s ended (refused): %s", _address(self._transport), why)
            self.end(None)

    def receive(self, data: bytes) -> None:
        """Handle received bytes. After the end they are discarded: a reset would destroy the last response on its way out."""
        if not self.ending:
            self._requests.receive(data)

    def eof_received(self) -> bool:
        """Note that the client sends nothing more. Returns True while a response is due."""
        if self.ending:
            self._last.client_closed()
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
        self._last.lost()
        if self._timer is not None:
            self._timer.cancel()
        self.limit.close()
        self._requests.close()
        self._owner.gone(self)

    def leave(self) -> None:
        """Close, after the last response was sent. A client whose request is not answered sends it again."""
        unread = self._transport.get_write_buffer_size()  # closing would wait for a client that reads nothing
        if self._requests.serving is not None or self._last.awaited or unread:
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
        self.waits(waits=False)
        self.read(more=True)
        self._last.written(on_read)
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


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return "{}:{}".format(*peer) if peer else "an unknown address"
