"""One socket: performs what its `Session` decides. No task of its own, nothing is logged a message."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import partial
from typing import Protocol

from fogline.address import shown
from fogline.errors import SlowDown
from fogline.event import Receipt
from fogline_edge.adapters.mqtt.framing import Framer
from fogline_edge.adapters.mqtt.session import Border, Close, Effect, LastWill, Opened, Send, Session, Store, Verify, Why
from fogline_edge.adapters.mqtt.sessions import Key
from fogline_edge.adapters.mqtt.window import Ticket
from fogline_edge.adapters.mqtt.wire import PacketError, Reason
from fogline_edge.adapters.port import Port

_log = logging.getLogger(__name__)

PACKETS_A_TURN = 256
"""How many packets of one connection are handled before the others have their turn."""
WRITE_BUFFER_BYTES = 65_536
"""How much may wait for a client that does not read; beyond, the connection ends."""
_LINGER_S = 1.0
"""How long a client may take to read the last words."""


@dataclass(slots=True)
class Counters:
    """What the listener counts since it started, but for `connected`, which is now.

    `connections`: sockets accepted. `received`: PUBLISHes and wills handed to the port. `acknowledged`: PUBACKs sent.
    `over_limit`: sockets closed because there were too many. `refused`: CONNECTs answered with no. How the others
    ended: `left` (DISCONNECT), `lost`, `malformed` (broke the protocol), `taken_over` (by the same client again),
    `timed_out` (no CONNECT, or silent beyond its keep alive), `slow_reader` (did not read its answers), `shut_down`.
    """

    connections: int = 0
    connected: int = 0
    received: int = 0
    acknowledged: int = 0
    refused: int = 0
    over_limit: int = 0
    left: int = 0
    lost: int = 0
    malformed: int = 0
    taken_over: int = 0
    timed_out: int = 0
    slow_reader: int = 0
    shut_down: int = 0


class Owner(Protocol):
    """The listener, as a connection sees it."""

    port: Port
    border: Border
    counters: Counters

    def joined(self, connection: "Connection") -> bool:
        """A socket is there. Returns whether it may stay."""

    def opened(self, connection: "Connection", opened: Opened) -> None:
        """Its client is in."""

    def verify(self, connection: "Connection", verify: Verify) -> None:
        """Check a password, then call `connection.verified`."""

    def schedule(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn."""

    def ended(self, connection: "Connection", key: Key | None, will: LastWill | None) -> None:
        """Its session is over; the socket may linger."""

    def gone(self, connection: "Connection") -> None:
        """The socket is closed."""


class _Hold(IntFlag):
    """Why nothing is read at present."""

    VERIFY = 1
    ROOM = 2
    WINDOW = 4
    TURN = 8


class Connection(asyncio.Protocol):
    """One client's socket."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._session = Session(owner.border, self._heard)
        self._framer = Framer(owner.border.max_packet_bytes)
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._kept: Store | None = None
        self._held = _Hold(0)
        self._done = False
        self._dirty = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket was accepted."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._owner.joined(self):
            self._done = True
            transport.abort()
            return
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes came. After the end they are read and forgotten, so that the last words are not lost to a reset."""
        if self._done:
            return
        self._heard = self._loop.time()
        self._framer.feed(data)
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, whoever did it."""
        self._conclude(Why.LOST, f"the connection was lost: {exc}" if exc else "the client closed the connection")
        if self._timer is not None:
            self._timer.cancel()
        self._owner.gone(self)

    def pause_writing(self) -> None:
        """The client does not read what it is sent."""
        self._conclude(Why.SLOW_READER, "the client does not read")
        self._transport.abort()

    @property
    def ending(self) -> bool:
        """Whether its session is over."""
        return self._done

    def verified(self, *, ok: bool) -> None:
        """The answer to `Owner.verify`."""
        if not self._done:
            self._perform(self._session.verified(ok=ok, now=self._loop.time()))
            self._release(_Hold.VERIFY)

    def take_over(self, *, resumed: bool) -> None:
        """Another connection has come for this session."""
        self._finish(
            self._session.dismiss(Reason.SESSION_TAKEN_OVER, Why.TAKEN_OVER, "the client connected again"),
            taken_over=True,
            resumed=resumed,
        )

    def shut_down(self) -> None:
        """The listener ends."""
        self._finish(self._session.dismiss(Reason.SERVER_SHUTTING_DOWN, Why.SHUT_DOWN, "the listener ends"))

    def give_way(self) -> None:
        """End at once, because another socket needs the place."""
        self._conclude(Why.OVER_LIMIT, "too many connections, and this one has said nothing for longest")
        self._transport.abort()

    def _pump(self) -> None:
        """Handle the packets that are there, a turn's worth at most."""
        session, framer = self._session, self._framer
        for _ in range(PACKETS_A_TURN):
            if self._held or self._done:
                return
            try:
                packet = framer.next_packet()
            except PacketError as error:
                self._finish(session.fail(error))
                return
            if packet is None:
                return
            self._perform(session.receive(*packet, self._heard))
        if not self._done:
            self._hold(_Hold.TURN)
            self._loop.call_soon(self._release, _Hold.TURN)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Store():
                    self._put(effect)
                case Send(data):
                    self._transport.write(data)
                case Opened():
                    self._owner.opened(self, effect)
                    self._watch()
                case Verify():
                    self._hold(_Hold.VERIFY)
                    self._owner.verify(self, effect)
                case Close():
                    self._finish(effect)

    def _put(self, store: Store) -> None:
        owner = self._owner
        try:
            owner.port.put(store.arrival, partial(self._committed, store.ticket))
        except SlowDown:
            self._kept = store
            self._hold(_Hold.ROOM)
            owner.port.when_room(self._room)
            return
        owner.counters.received += 1
        if self._session.full:
            self._hold(_Hold.WINDOW)

    def _room(self) -> None:
        """The port takes arrivals again: first the one that it did not take."""
        kept, self._kept = self._kept, None
        if kept is not None and not self._done:
            self._put(kept)
            if self._kept is None:
                self._release(_Hold.ROOM)

    def _committed(self, ticket: Ticket, receipt: Receipt) -> None:  # noqa: ARG002 (all receipts are acknowledged)
        self._session.committed(ticket)
        if not self._dirty:
            self._dirty = True
            self._owner.schedule(self._flush)

    def _flush(self) -> None:
        """Send the PUBACKs of this turn in one write, and read on if there is room in the window again."""
        self._dirty = False
        if self._done:
            return
        self._acknowledge()
        if self._held & _Hold.WINDOW and not self._session.full:
            self._release(_Hold.WINDOW)

    def _acknowledge(self) -> None:
        data, count = self._session.acknowledgements()
        if count:
            self._transport.write(data)
            self._owner.counters.acknowledged += count

    def _hold(self, why: _Hold) -> None:
        if not self._held:
            self._transport.pause_reading()
        self._held |= why

    def _release(self, why: _Hold) -> None:
        self._held &= ~why
        if not self._held and not self._done:
            self._heard = self._loop.time()
            self._transport.resume_reading()
            self._pump()

    def _watch(self) -> None:
        """(Re)start the one timer. It looks again when it fires, so that a packet costs no timer."""
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._session.deadline(self._heard)
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if self._held:
            self._heard = now
        deadline = self._session.deadline(self._heard)
        if deadline is not None and deadline <= now:
            self._finish(self._session.dismiss(Reason.KEEP_ALIVE_TIMEOUT, Why.TIMED_OUT, "nothing was heard in time"))
        else:
            self._watch()

    def _conclude(self, why: Why, detail: str, *, taken_over: bool = False, resumed: bool = False) -> bool:
        """The session is over, and its will is the owner's. Returns whether this ended it."""
        if self._done:
            return False
        self._done = True
        counters, session = self._owner.counters, self._session
        setattr(counters, why, getattr(counters, why) + 1)
        peer = self._transport.get_extra_info("peername")
        level = logging.INFO if why in (Why.REFUSED, Why.MALFORMED) else logging.DEBUG
        _log.log(level, "%s client %s at %s: %s", why, shown((session.key or ("", "?"))[1]), peer, detail)
        self._owner.ended(self, session.key, session.end(self._loop.time(), taken_over=taken_over, resumed=resumed))
        return True

    def _finish(self, close: Close, *, taken_over: bool = False, resumed: bool = False) -> None:
        """End from this side: what is due, the last words, then no more writing; the client has a moment to read them."""
        if self._done:
            return
        self._acknowledge()
        if not self._conclude(close.why, close.detail, taken_over=taken_over, resumed=resumed):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._transport.resume_reading()
        if close.data:
            self._transport.write(close.data)
        if close.why is Why.LEFT:
            self._transport.close()
        elif self._transport.can_write_eof():
            self._transport.write_eof()
        self._timer = self._loop.call_later(_LINGER_S, self._transport.abort)
