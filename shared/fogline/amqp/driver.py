"""AMQP over asyncio: one `Connection` drives one `Engine` over one socket, lane by lane.

Bytes are handed to proton only while the socket takes them (write buffer of a chunk, `TCP_NOTSENT_LOWAT`), so that the
scheduler's choice is never older than what the kernel has not sent yet.
"""

import asyncio
import logging
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fogline.amqp.engine import Engine
from fogline.amqp.events import (
    Closed,
    Credit,
    Delivery,
    Link,
    LinkClosed,
    LinkRequested,
    Opened,
    Peer,
    Received,
    Settled,
)
from fogline.amqp.outcome import Condition, Outcome
from fogline.amqp.scheduler import CHUNK_BYTES, Share
from fogline.amqp.sending import Outbound, Sender
from fogline.errors import Unreachable
from fogline.message import Property

HANDSHAKE_S = 10.0
"""A peer that has not opened the connection by then is cut off."""
CLOSE_S = 2.0
"""How long a connection that is over may take to write its rest; a peer that is gone takes nothing any more."""

_log = logging.getLogger("fogline.amqp")
_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()


class Handler(Protocol):
    """What a connection tells its owner. Called on the loop; must not block, must not raise."""

    def opened(self, connection: "Connection", peer: Peer) -> None:
        """The peer has opened: a server calls `connection.accept()` or `connection.close(why)`."""

    def link_requested(self, connection: "Connection", link: Link) -> None:
        """The peer wants a link: call `accept_link` or `refuse_link`."""

    def link_closed(self, connection: "Connection", link: Link, condition: Condition | None) -> None:
        """The peer closed a link; what was in flight on it is unknown."""

    def received(self, connection: "Connection", delivery: Delivery, data: bytes) -> None:
        """A whole message came: `connection.settle(delivery, ...)`, now or later."""

    def closed(self, connection: "Connection", why: str) -> None:
        """It is over. Called once, last; every waiting `Sender.send` has failed with `Unreachable`."""


class Connection(asyncio.Protocol):
    """One AMQP connection. Made by `connect` or `listen`."""

    def __init__(self, engine: Engine, handler: Handler, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._handler = handler
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._outbound = Outbound(engine, self._turn)
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._in_turn = False
        self._again = False
        self._why = ""
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: asyncio.TimerHandle | None = None
        self.bytes_sent = 0
        self.bytes_received = 0

    # --- for the owner

    def accept(self) -> None:
        """Answer the peer's open."""
        self._engine.open()
        self._turn()

    def close(self, condition: Condition | None = None) -> None:
        """Begin to close; `Handler.closed` follows. Safe to call twice."""
        if self._ended:
            return
        if condition is not None and not self._why:
            self._why = f"closed from this side: {condition}"
        self._engine.close(condition)
        if self._handshake is None:
            self._abort_in(HANDSHAKE_S)
        self._turn()

    def abort(self) -> None:
        """Cut the socket at once. Safe to call twice, and after the end."""
        if self._transport is not None and not self._ended:  # asyncio's may raise once it is closed
            self._transport.abort()

    def pause_reading(self) -> None:
        """Leave what the peer sends in the socket, its heartbeats too: for longer than the idle time-out it is cut off."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def open_session(self) -> Any:
        """A new session for links of this connection."""
        return self._engine.open_session()

    def is_open(self, session: Any) -> bool:
        """Whether neither side has ended a session."""
        return self._engine.is_open(session)

    def open_sender(self, session: Any, name: str, address: str, share: Share, properties: Mapping[str, Property]) -> Sender:
        """Attach a sending link; messages wait until the peer grants credit."""
        sender = self._outbound.add(self._engine.open_sender(session, name, address, properties), share)
        self._turn()
        return sender

    def open_receiver(self, session: Any, name: str, address: str, credit: int) -> Link:
        """Attach a receiving link."""
        link = self._engine.open_receiver(session, name, address, credit)
        self._turn()
        return link

    def accept_link(self, link: Link, *, credit: int = 0, share: Share | None = None) -> Sender | None:
        """Attach to a requested link: with `credit` if the peer sends, as a `Sender` with `share` if this side does."""
        self._engine.accept_link(link, credit)
        sender = self._outbound.add(link, share or Share()) if link.sending else None
        self._turn()
        return sender

    def refuse_link(self, link: Link, condition: Condition) -> None:
        """Refuse or end a link; what waited on it fails."""
        self._engine.refuse_link(link, condition)
        self._outbound.drop(link)
        self._turn()

    def grant(self, link: Link, credit: int) -> None:
        """Let the peer send `credit` more messages."""
        self._engine.grant(link, credit)
        self._turn()

    def settle(self, delivery: Delivery, outcome: Outcome, credit: int = 0) -> None:
        """Say what became of a received message, and let the peer send `credit` more on its link."""
        self._engine.settle(delivery, outcome)
        if credit:
            self._engine.grant(delivery.link, credit)
        self._turn()

    @property
    def unsettled(self) -> int:
        """Messages sent and not settled by the peer, or still waiting to be sent."""
        return len(self._outbound)

    # --- one turn: events, then output while the socket takes it, then timers

    def _turn(self) -> None:
        if self._in_turn:
            self._again = True
            return
        if self._transport is None or self._ended:
            return
        self._in_turn = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._take_events()
                self._write()
        finally:
            self._in_turn = False
        self._arm_timer()

    def _write(self) -> None:
        transport = self._transport
        assert transport is not None
        while not self._paused and not transport.is_closing():
            data = self._engine.data_to_send()
            if data:
                self.bytes_sent += len(data)
                transport.write(data)
            elif self._engine.finished:
                transport.close()
            elif not self._outbound.hand_over():
                return

    def _take_events(self) -> None:
        for event in self._engine.events():
            match event:
                case Received(delivery, data):
                    self._handler.received(self, delivery, data)
                case Settled(delivery, outcome):
                    self._outbound.settled(delivery, outcome)
                case Credit(link, credit):
                    self._outbound.credit(link, credit)
                case LinkRequested(link):
                    self._handler.link_requested(self, link)
                case LinkClosed(link, condition):
                    self._outbound.drop(link)
                    self._handler.link_closed(self, link, condition)
                case Opened(peer):
                    self._on_opened(peer)
                case Closed(condition):
                    self._why = self._why or (str(condition) if condition else "closed by the peer")
                    self._abort_in(CLOSE_S)

    def _on_opened(self, peer: Peer) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        self._handler.opened(self, peer)

    # --- timers

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ended or self._transport is None or self._transport.is_closing():
            return
        now = self._clock()
        deadline = self._engine.tick(now)
        if deadline:
            self._timer = self._loop.call_later(max(0.0, deadline - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._engine.tick(self._clock())
        self._turn()

    def _abort_in(self, limit_s: float) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
        self._handshake = self._loop.call_later(limit_s, self.abort)

    def _on_handshake_deadline(self) -> None:
        self._why = f"no AMQP open in {HANDSHAKE_S:.0f} s"
        self.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        _open.add(self)
        transport.set_write_buffer_limits(high=CHUNK_BYTES // 2)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, CHUNK_BYTES)
        self._handshake = self._loop.call_later(HANDSHAKE_S, self._on_handshake_deadline)
        self._turn()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.bytes_received += len(data)
        self._engine.receive_data(data)
        self._turn()

    def eof_received(self) -> bool:
        """The peer closed its half: the rest is written, then the socket is closed."""
        self._engine.receive_eof()
        self._turn()
        return False

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._paused = False
        self._loop.call_soon(self._turn)  # asyncio would end a transport twice that is closed within this call

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: everything unsettled is unknown."""
        try:
            self._take_events()
        finally:
            self._ended = True
            _open.discard(self)
            for timer in (self._timer, self._handshake):
                if timer is not None:
                    timer.cancel()
            why = self._why or (str(exc) if exc else "the connection was closed")
            self._outbound.end(why)
            self._engine.release()
            handler = self._handler
            del self._handler  # no cycle is left for the garbage collector
            handler.closed(self, why)


def open_connections() -> list[Connection]:
    """All connections of this process whose sockets are open, for those who look for leaks."""
    return list(_open)


async def connect(host: str, port: int, engine: Engine, handler: Handler, *, limit_s: float = HANDSHAKE_S) -> Connection:
    """Open the socket of a client; `Handler.opened` follows. Raises `Unreachable`."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limit_s):
            _, connection = await loop.create_connection(lambda: Connection(engine, handler), host, port)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"no connection to {host}:{port}: {error or 'no answer'}") from None
    return connection


async def listen(host: str, port: int, make: Callable[[], Connection]) -> asyncio.Server:
    """Serve AMQP: `make` builds the connection of each socket (an `Engine` of its own). Raises `OSError`."""
    return await asyncio.get_running_loop().create_server(make, host, port, backlog=1024)
