"""One client's socket: its life from the first byte to the last word. No task of its own, nothing is logged a message."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from fogline.address import shown
from fogline.rates import DeviceRates
from fogline_edge.adapters.mqtt import session
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.dispatch import Dispatch
from fogline_edge.adapters.mqtt.effects import Close, Key, LastWill, Opened, Verify, Why
from fogline_edge.adapters.mqtt.flow import Flow
from fogline_edge.adapters.mqtt.session import Border, Session
from fogline_edge.adapters.mqtt.wire import Reason
from fogline_edge.adapters.port import Port

_log = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 65_536
"""How much may wait for a client that does not read; beyond, the connection ends."""
DRAIN_S = 10.0
"""How long a client may take to read a command that is larger than that."""
_SLOW = "the client does not read"
_LINGER_S = 1.0
"""How long a client may take to read the last words."""


class Owner(Protocol):
    """The listener, as a connection sees it."""

    port: Port
    border: Border
    counters: Counters
    dispatch: Dispatch
    rates: DeviceRates

    def schedule(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn."""

    def joined(self, connection: "Connection") -> bool:
        """A socket is there. Returns whether it may stay."""

    def opened(self, connection: "Connection", opened: Opened) -> None:
        """Its client is in."""

    def verify(self, connection: "Connection", verify: Verify) -> None:
        """Check a password, then call `connection.flow.verified`."""

    def ended(self, connection: "Connection", key: Key | None, will: LastWill | None) -> None:
        """Its session is over; the socket may linger."""

    def gone(self, connection: "Connection") -> None:
        """The socket is closed."""


class Connection(asyncio.Protocol):
    """One client's socket. `ending`: its session is over."""

    flow: Flow
    _transport: asyncio.Transport

    def __init__(self, owner: Owner) -> None:
        self.ending = False
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._session = Session(owner.border, self._loop.time())
        self._timer: asyncio.TimerHandle | None = None
        self._draining: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket was accepted."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.flow = Flow(self._session, self, transport, self._owner)
        if not self._owner.joined(self):
            self.ending = True
            transport.abort()
            return
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes came. After the end they are read and forgotten, so that the last words are not lost to a reset."""
        if not self.ending:
            self.flow.feed(data)
            if self.flow.unfinished_since is not None:
                self._watch_packet(self.flow.unfinished_since)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, whoever did it."""
        self._conclude(Why.LOST, f"the connection was lost: {exc}" if exc else "the client closed the connection")
        for timer in (self._timer, self._draining):
            if timer is not None:
                timer.cancel()
        self.flow.release()
        del self.flow  # no cycle is left for the garbage collector
        self._owner.gone(self)

    def pause_writing(self) -> None:
        """The client does not read what it is sent. If that is a command, it is given time, and nothing more meanwhile."""
        if self.flow.bulky and not self.ending:
            self.flow.slow(slow=True)
            self._draining = self._loop.call_later(DRAIN_S, self.drop, Why.SLOW_READER, _SLOW)
        else:
            self.drop(Why.SLOW_READER, _SLOW)

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None
            self._loop.call_soon(self._go_on)  # asyncio would end a transport twice that is closed within this call

    def _go_on(self) -> None:
        if not self.ending and self._draining is None:
            self.flow.slow(slow=False)

    def opened(self, opened: Opened) -> None:
        """As `Peer.opened`."""
        self._owner.opened(self, opened)
        self._watch()

    def verify(self, verify: Verify) -> None:
        """As `Peer.verify`."""
        self._owner.verify(self, verify)

    def take_over(self, *, resumed: bool) -> None:
        """Another connection has come for the client; `resumed`: and goes on with its session."""
        self.finish(self._session.dismiss(Reason.SESSION_TAKEN_OVER, Why.TAKEN_OVER, "the client came again"), resumed=resumed)

    def shut_down(self) -> None:
        """The listener ends."""
        self.finish(self._session.dismiss(Reason.SERVER_SHUTTING_DOWN, Why.SHUT_DOWN, "the listener ends"))

    def drop(self, why: Why, detail: str) -> None:
        """End at once, without a word."""
        self._conclude(why, detail)
        self._transport.abort()

    def finish(self, close: Close, *, resumed: bool = False) -> None:
        """End from this side: what is due, the last words, then no more writing; the client has a moment to read them."""
        if self.ending:
            return
        self.flow.acknowledge()
        if not self._conclude(close.why, close.detail, resumed=resumed):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._transport.resume_reading()
        if close.data:
            self._transport.write(close.data)
        if close.why is Why.LEFT:
            self._transport.close()
        elif self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has cut the line, and the loop has not told yet
                self._transport.write_eof()
        self._timer = self._loop.call_later(_LINGER_S, self._transport.abort)

    def _conclude(self, why: Why, detail: str, *, resumed: bool = False) -> bool:
        """The session is over, and its will is the owner's. Returns whether this ended it."""
        if self.ending:
            return False
        self.ending = True
        self.flow.stop()
        counters, key = self._owner.counters, self._session.key
        setattr(counters, why, getattr(counters, why) + 1)
        level = logging.INFO if why in (Why.REFUSED, Why.MALFORMED) else logging.DEBUG
        client = "a client" if key is None else f"client {shown(key[1])}"
        _log.log(level, "%s at %s %s: %s", client, self._transport.get_extra_info("peername"), why, detail)
        now, taken_over, drained = self._loop.time(), why is Why.TAKEN_OVER, self.flow.drained()
        ended = self._session.end(now, taken_over=taken_over, resumed=resumed, drained=drained)
        self.flow.perform(ended.effects)
        self._owner.ended(self, key, ended.will)
        return True

    def _watch(self) -> None:
        """(Re)start the one timer. It looks again when it fires, so that a packet costs no timer."""
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._look)

    def _watch_packet(self, since: float) -> None:
        """A packet has begun that is not whole: the timer must not look later than its time limit says."""
        if not self.ending and (self._timer is None or self._timer.when() > since + session.PACKET_S):
            self._watch()

    def _deadline(self) -> float | None:
        return self._session.deadline(self.flow.heard, self.flow.unfinished_since)

    def _look(self) -> None:
        deadline = self._deadline()
        if deadline is not None and deadline <= self._loop.time():
            self.finish(self._session.dismiss(Reason.KEEP_ALIVE_TIMEOUT, Why.TIMED_OUT, "nothing was heard in time"))
        else:
            self._watch()
