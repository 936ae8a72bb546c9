"""AMQP over asyncio: an `AmqpConnection` is one `Engine` on one socket.

Bytes are handed to proton only while the socket takes them (a write buffer of one chunk, `TCP_NOTSENT_LOWAT`). So the
scheduler decides late, and an urgent message waits at most for the bytes that the kernel has not sent yet.
"""

import asyncio
import logging
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from fogline.amqp.engine import Engine
from fogline.amqp.events import (
    AmqpPeer,
    Closed,
    ConnectionOpened,
    Credit,
    Delivery,
    Link,
    LinkClosed,
    LinkRequested,
    LoginRequested,
    Received,
    Settled,
)
from fogline.amqp.login import Login, LoginVerdict
from fogline.amqp.outcome import Condition, Outcome
from fogline.amqp.scheduler import CHUNK_BYTES, Share
from fogline.amqp.sending import Sender, SendQueues
from fogline.errors import Unreachable
from fogline.message import Property

HANDSHAKE_S = 10.0
"""Time that the peer has to open the connection, and to answer a close."""
TICK_S = 0.25
"""Least time between two settings of the heartbeat's timer."""
CLOSE_S = 2.0
"""Time to write the rest of a closed connection's bytes. A peer that is gone never takes them."""

_log = logging.getLogger("fogline.amqp")
_open: "weakref.WeakSet[AmqpConnection]" = weakref.WeakSet()


class Handler(Protocol):
    """The owner of a connection. Its methods are called on the loop; they must not block and must not raise."""

    def opened(self, connection: "AmqpConnection", peer: AmqpPeer) -> None:
        """The peer has opened the connection. A server calls `connection.accept()` or `connection.close(why)`."""

    def link_requested(self, connection: "AmqpConnection", link: Link) -> None:
        """The peer requests a link: call `accept_link` or `refuse_link`."""

    def link_closed(self, connection: "AmqpConnection", link: Link, condition: Condition | None) -> None:
        """The peer has closed a link. The outcome of its unsettled messages is unknown."""

    def received(self, connection: "AmqpConnection", delivery: Delivery, data: bytes) -> None:
        """A whole message has arrived: call `connection.settle(delivery, ...)`, now or later."""

    def closed(self, connection: "AmqpConnection", why: str) -> None:
        """The connection is over. Called once, last, after every waiting `Sender.send` has failed with `Unreachable`."""


CheckPassword = Callable[[Login, str, Callable[[LoginVerdict], None]], None]
"""Checks a user name and a password of a peer at an address. Calls its last argument once, on the loop, with the verdict."""


class AmqpConnection:
    """One AMQP connection, as its owner uses it. All methods are called on the loop. `protocol` is for asyncio only.

    `check_password`: required where the engine offers PLAIN. `on_connected` gets the connection and the peer's address.
    """

    def __init__(
        self,
        engine: Engine,
        handler: Handler,
        check_password: CheckPassword | None = None,
        on_connected: "Callable[[AmqpConnection, str], None] | None" = None,
    ) -> None:
        self._engine = engine
        self.protocol = SocketProtocol(self, engine, handler, check_password, on_connected)
        self._outbound = self.protocol.outbound

    def accept(self, properties: Mapping[str, Property] | None = None) -> None:
        """Answer the peer's open frame, with these properties."""
        self._engine.open(properties)
        self.protocol.turn()

    def close(self, condition: Condition | None = None, *, heed: bool = True) -> None:
        """Begin to close; `Handler.closed` follows. Safe to call twice.

        `heed`: False drops the peer's unfinished messages, and whatever still comes.
        """
        self.protocol.begin_close(condition, heed=heed)

    def abort(self, why: str = "") -> None:
        """Close the socket at once. Safe to call twice, and after the end."""
        self.protocol.abort(why)

    def pause_reading(self) -> None:
        """Leave the peer's bytes in the socket. A pause of the idle time-out ends the connection: heartbeats wait too."""
        if self.protocol.transport is not None:
            self.protocol.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self.protocol.transport is not None:
            self.protocol.transport.resume_reading()

    def open_session(self) -> Any:
        """Return a new session for links of this connection."""
        return self._engine.links.open_session()

    def is_session_open(self, session: Any) -> bool:
        """Return True if neither side has ended the session."""
        return self._engine.links.is_session_open(session)

    def open_sender(
        self,
        session: Any,
        name: str,
        address: str,
        share: Share,
        properties: Mapping[str, Property],
        *,
        capabilities: Sequence[str] = (),
    ) -> Sender:
        """Attach a sending link. Its messages wait until the peer grants credit. `capabilities`: asked of the address."""
        sender = self._outbound.add(
            self._engine.links.open_sender(session, name, address, properties, capabilities=capabilities), share
        )
        self.protocol.turn()
        return sender

    def open_receiver(
        self,
        session: Any,
        name: str,
        address: str,
        credit: int,
        properties: Mapping[str, Property] | None = None,
        *,
        capabilities: Sequence[str] = (),
    ) -> Link:
        """Attach a receiving link. `capabilities`: asked of the address."""
        link = self._engine.links.open_receiver(session, name, address, credit, properties, capabilities=capabilities)
        self.protocol.turn()
        return link

    def accept_link(
        self, link: Link, *, credit: int = 0, share: Share | None = None, on_credit: Callable[[], None] = lambda: None
    ) -> Sender | None:
        """Attach to a requested link: with `credit` if the peer sends on it, with `share` and a `Sender` if this side does.

        `on_credit` is called when the peer has changed the credit of the `Sender`.
        """
        self._engine.links.accept(link, credit)
        sender = self._outbound.add(link, share or Share(), on_credit) if link.sending else None
        self.protocol.turn()
        return sender

    def refuse_link(self, link: Link, condition: Condition) -> None:
        """Refuse or end a link; the messages that wait on it fail with `Unreachable`."""
        self._engine.links.refuse(link, condition)
        self._outbound.drop(link)
        self.protocol.turn()

    def grant(self, link: Link, credit: int) -> None:
        """Let the peer send `credit` more messages."""
        self._engine.links.grant(link, credit)
        self.protocol.turn()

    def settle(self, delivery: Delivery, outcome: Outcome, credit: int = 0) -> None:
        """Settle a received message, and let the peer send `credit` more on its link."""
        self._engine.links.settle(delivery, outcome)
        if credit:
            self._engine.links.grant(delivery.link, credit)
        self.protocol.turn()

    @property
    def unsettled(self) -> int:
        """Number of messages that the peer has not settled, including those that still wait to be sent."""
        return len(self._outbound)


class SocketProtocol(asyncio.Protocol):
    """Moves bytes between a connection's socket and its engine, hands the events to the handler, and keeps the timers."""

    def __init__(
        self,
        connection: AmqpConnection,
        engine: Engine,
        handler: Handler,
        check_password: CheckPassword | None,
        on_connected: Callable[[AmqpConnection, str], None] | None,
    ) -> None:
        self.outbound = SendQueues(engine, self.turn)
        self.transport: asyncio.Transport | None = None
        self._connection = connection
        self._engine = engine
        self._handler = handler
        self._check_password = check_password
        self._on_connected = on_connected
        self._address = ""
        self._loop = asyncio.get_running_loop()
        self._paused = self._in_turn = self._again = self._ended = False
        self._why = ""
        self._heartbeat: asyncio.TimerHandle | None = None
        self._ticked_s = 0.0
        self._deadline: asyncio.TimerHandle | None = None

    def turn(self) -> None:
        """Handle the events, write while the socket takes bytes, then set the timer. A call within a turn repeats it."""
        if self._in_turn:
            self._again = True
            return
        if self.transport is None or self._ended:
            return
        self._in_turn = self._again = True
        try:
            while self._again:
                self._again = False
                self._handle_events()
                self._write(self.transport)
        finally:
            self._in_turn = False
        self._set_heartbeat(self.transport)

    def begin_close(self, condition: Condition | None, *, heed: bool = True) -> None:
        """See `AmqpConnection.close`."""
        if self._ended:
            return
        if condition is not None and not self._why:
            self._why = f"closed from this side: {condition}"
        self._engine.close(condition, heed=heed)
        if self._deadline is None or not heed:
            self._set_deadline(HANDSHAKE_S if heed else CLOSE_S)
        self.turn()

    def abort(self, why: str = "") -> None:
        """See `AmqpConnection.abort`."""
        self._why = self._why or why
        if self.transport is not None and not self._ended:  # asyncio's may raise once it is closed
            self.transport.abort()

    def _write(self, transport: asyncio.Transport) -> None:
        while not self._paused and not transport.is_closing():
            data = self._engine.data_to_send()
            if data:
                transport.write(data)
            elif self._engine.finished:
                transport.close()
            elif not self.outbound.hand_over():
                return

    def _handle_events(self) -> None:
        connection = self._connection
        for event in self._engine.events():
            match event:
                case Received(delivery, data):
                    self._handler.received(connection, delivery, data)
                case Settled(delivery, outcome):
                    self.outbound.settled(delivery, outcome)
                case Credit(link, credit, drain):
                    self.outbound.set_credit(link, credit, drain=drain)
                case LinkRequested(link):
                    self._handler.link_requested(connection, link)
                case LinkClosed(link, condition):
                    self.outbound.drop(link)
                    self._handler.link_closed(connection, link, condition)
                case LoginRequested(login):
                    assert self._check_password is not None, "the engine offers PLAIN"
                    self._check_password(login, self._address, partial(_answer_login, self, self._engine))
                case ConnectionOpened(peer):
                    self._set_deadline(None)
                    self._handler.opened(connection, peer)
                case Closed(condition):
                    self._why = self._why or str(condition or "closed by the peer")
                    self._set_deadline(CLOSE_S)

    def _set_heartbeat(self, transport: asyncio.Transport) -> None:
        """Set the timer of empty frames. Traffic only moves it to a later time, so that it need not be set in every turn."""
        ended, now_s = self._ended or transport.is_closing(), time.monotonic()
        if self._heartbeat is not None and not ended and now_s - self._ticked_s < TICK_S:
            return
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        if ended:
            return
        self._ticked_s, due_s = now_s, self._engine.tick(now_s)
        if due_s:
            self._heartbeat = self._loop.call_later(max(0.0, due_s - now_s), self._on_heartbeat)

    def _on_heartbeat(self) -> None:
        self._heartbeat = None
        self._engine.tick(time.monotonic())
        self.turn()

    def _set_deadline(self, limit_s: float | None, why: str = "") -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(limit_s, self.abort, why) if limit_s is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake on a connected socket."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        _open.add(self._connection)
        transport.set_write_buffer_limits(high=CHUNK_BYTES // 2)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, CHUNK_BYTES)
        self._set_deadline(HANDSHAKE_S, f"no AMQP open in {HANDSHAKE_S:.0f} s")
        self._address = (transport.get_extra_info("peername") or [""])[0]
        if self._on_connected is not None:
            self._on_connected(self._connection, self._address)
        self.turn()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the peer."""
        self._engine.receive_data(data)
        self.turn()

    def eof_received(self) -> bool:
        """Handle the end of the peer's bytes: the rest is written, then asyncio closes the socket."""
        self._engine.receive_eof()
        self.turn()
        return False

    def pause_writing(self) -> None:
        """Stop writing: the socket's buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write again."""
        self._paused = False
        self._loop.call_soon(self.turn)  # asyncio ends a transport twice if it is closed within this call

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection: the outcome of every unsettled message is unknown."""
        try:
            self._handle_events()
        finally:
            self._ended = True
            connection, handler = self._connection, self._handler
            # The cycle with the connection is broken here, because the garbage collector seldom looks at old objects.
            del self._connection, self._handler
            _open.discard(connection)
            for timer in (self._heartbeat, self._deadline):
                if timer is not None:
                    timer.cancel()
            why = self._why or (str(exc) if exc else "the connection was closed")
            self.outbound.end(why)
            self._engine.release()
            handler.closed(connection, why)


def _answer_login(protocol: SocketProtocol, engine: Engine, verdict: LoginVerdict) -> None:
    engine.answer_login(verdict)
    protocol.turn()


def open_connections() -> list[AmqpConnection]:
    """Return every connection of this process whose socket is open. Used to find leaks."""
    return list(_open)


async def connect(host: str, port: int, engine: Engine, handler: Handler) -> AmqpConnection:
    """Connect a client's socket to its server; `Handler.opened` follows. Raises `Unreachable`."""
    made: list[AmqpConnection] = []

    def make() -> SocketProtocol:  # asyncio calls it once, after the socket is connected
        made.append(AmqpConnection(engine, handler))
        return made[0].protocol

    try:
        async with asyncio.timeout(HANDSHAKE_S):
            await asyncio.get_running_loop().create_connection(make, host, port)
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: no host can have such a name
        raise Unreachable(f"cannot connect to {host}:{port}: {error or 'timeout'}") from None
    return made[0]


async def listen(host: str, port: int, make: Callable[[], AmqpConnection]) -> asyncio.Server:
    """Serve AMQP. `make` returns a new connection, with an `Engine` of its own, for each socket. Raises `OSError`."""
    return await asyncio.get_running_loop().create_server(lambda: make().protocol, host, port, backlog=1024)
