"""The packets of one connection on their way: bytes to packets to the session, arrivals to the port, PUBACKs back.

Whatever cannot go on at once (a password, a full port, a full window, a long turn, a device that is too fast) is a reason
to read nothing; when the last reason is gone, it goes on where it stopped. Nothing here waits, and nothing is lost in between.
"""

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable, Sequence
from enum import IntFlag
from functools import partial
from typing import Protocol

from fogline.errors import SlowDown
from fogline.event import Receipt
from fogline.rates import Bucket, DeviceRates
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.dispatch import Dispatch
from fogline_edge.adapters.mqtt.effects import Close, Effect, Opened, Respond, Send, Store, Verify, Why
from fogline_edge.adapters.mqtt.framing import Framer
from fogline_edge.adapters.mqtt.outlet import Outlet
from fogline_edge.adapters.mqtt.session import Border, Session
from fogline_edge.adapters.mqtt.window import Ticket
from fogline_edge.adapters.mqtt.wire import PacketError
from fogline_edge.adapters.port import Port

_BULKY_BYTES = 1024
"""What is larger is a command, and may take its time to be read."""
PACKETS_A_TURN = 256
"""How many packets of one connection are handled before the others have their turn."""


class Hold(IntFlag):
    """Why nothing is read at present."""

    VERIFY = 1
    ROOM = 2
    WINDOW = 4
    TURN = 8
    SLOW = 16
    RATE = 32


class Peer(Protocol):
    """The connection, as its flow sees it."""

    def opened(self, opened: Opened) -> None:
        """The client is in."""

    def verify(self, verify: Verify) -> None:
        """Check a password, then call `Flow.verified`."""

    def finish(self, close: Close) -> None:
        """End; calls `Flow.stop`."""


class Surroundings(Protocol):
    """What all flows of a listener share."""

    port: Port
    border: Border
    counters: Counters
    dispatch: Dispatch
    rates: DeviceRates

    def schedule(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn."""


class Flow:
    """One connection's packets. `bulky`: something large was written since the client last read all."""

    def __init__(self, session: Session, peer: Peer, transport: asyncio.Transport, around: Surroundings) -> None:
        self._session = session
        self._peer = peer
        self._transport = transport
        self._port = around.port
        self._counters = around.counters
        self._outlet = Outlet(session, self.perform)
        self._dispatch = around.dispatch
        self._schedule = around.schedule
        self._loop = asyncio.get_running_loop()
        self._framer = Framer(around.border.settings.max_packet_bytes)
        self._held = Hold(0)
        self._kept: Store | Respond | None = None
        self.bulky = False
        self._rates = around.rates
        self._payer = ""
        self._bucket: Bucket | None = None
        self._stopped = False
        self._flushing = False
        self._heard = self._loop.time()
        self._unfinished_since: float | None = None

    @property
    def heard(self) -> float:
        """When the last whole packet came, in the loop's time; now, while the client is not read."""
        return self._loop.time() if self._held else self._heard

    @property
    def unfinished_since(self) -> float | None:
        """Since when a packet is not whole that the client has begun, or now while it is not read."""
        return self._loop.time() if self._held and self._unfinished_since is not None else self._unfinished_since

    def feed(self, data: bytes) -> None:
        """Bytes came."""
        now = self._loop.time()
        self._session.heard(now, drained=self.drained)
        self._framer.feed(data)
        self._pump(now)

    def verified(self, *, ok: bool) -> None:
        """The answer to `Peer.verify`."""
        self.perform(self._session.verified(ok=ok, now=self._loop.time()))
        self._release(Hold.VERIFY)

    def acknowledge(self) -> None:
        """Send the PUBACKs that are due, in one write."""
        data, count = self._session.window.take()
        if count:
            self._counters.acknowledged += count
            self._transport.write(data)
            self._session.window.written(self._loop.time())

    def drained(self) -> bool:
        """Whether the client's TCP has all that was sent to it (tcp(7), SIOCOUTQ)."""
        raw: socket.socket = self._transport.get_extra_info("socket")
        try:
            unacknowledged = fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, bytes(4))
        except (OSError, ValueError):  # the socket is closed
            return False
        return unacknowledged == bytes(4) and not self._transport.get_write_buffer_size()

    def stop(self) -> None:
        """Take nothing more, put nothing more, carry nothing more."""
        self._stopped = True
        self._outlet.stop()

    def release(self) -> None:
        """The socket is closed: drop the reference that makes a cycle. `stop` was called before."""
        del self._outlet

    def slow(self, *, slow: bool) -> None:
        """The client does not read (then nothing more is read from it, or begun), or it has read."""
        self.bulky = slow
        if slow:
            self._hold(Hold.SLOW)
        else:
            self._release(Hold.SLOW)
        if not self._stopped:
            self.perform(self._session.downstream.slow(slow=slow))

    def _pump(self, now: float) -> None:
        """Handle the packets that are there, a turn's worth at most."""
        session, framer = self._session, self._framer
        if session.key is not None and self._port.crowded and not self._held:
            self._wait_for_room()  # what follows may have to be kept or forgotten, which no port can refuse
        for _ in range(PACKETS_A_TURN):
            if self._held or self._stopped:
                return
            try:
                packet = framer.next_packet()
            except PacketError as error:
                self._peer.finish(session.fail(error))
                return
            if packet is None:
                if not framer.unfinished:
                    self._unfinished_since = None
                elif self._unfinished_since is None:
                    self._unfinished_since = now
                return
            self._heard, self._unfinished_since = now, None
            self.perform(session.receive(*packet, now))
        self._hold(Hold.TURN)
        self._loop.call_soon(self._release, Hold.TURN)

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what comes of something, in order."""
        for effect in effects:
            match effect:
                case Store():
                    self._put(effect)
                case Send(data):
                    self.acknowledge()  # a PUBCOMP never goes before its PUBREC
                    self.bulky = self.bulky or len(data) > _BULKY_BYTES
                    self._transport.write(data)
                case Respond():
                    self._put(effect)
                case Opened():
                    self._peer.opened(effect)
                case Verify():
                    self._hold(Hold.VERIFY)
                    self._peer.verify(effect)
                case Close(why=why):
                    if why is Why.LEFT:
                        self._session.heard(self._heard, drained=self.drained, after_s=0)
                    self._peer.finish(effect)
                case _:
                    self._dispatch.run(effect, self._outlet)

    def _put(self, store: Store | Respond) -> None:
        try:
            if isinstance(store, Store):
                self._port.put(store.arrival, partial(self._committed, store.ticket))
            else:
                self._dispatch.answer(store, partial(self._committed, store.ticket))
        except SlowDown:
            self._kept = store
            self._wait_for_room()
            return
        self._counters.received += 1
        if self._session.full:
            self._hold(Hold.WINDOW)
        device = store.arrival.device if isinstance(store, Store) else store.device
        if device != self._payer or self._bucket is None:
            self._payer, self._bucket = device, self._bucket_of(device)
        if pause_s := self._bucket.pay(self._heard):
            self._pause(pause_s)

    def _bucket_of(self, device: str) -> Bucket:
        """Whose share it is: the device's, or for what is the gateway's word about the client (dead letters), the client's."""
        return self._rates.bucket(self._session.key if device == self._port.gateway else device, self._heard)

    def _pause(self, pause_s: float) -> None:
        self._counters.slowed += 1
        self._hold(Hold.RATE)
        self._loop.call_later(pause_s, self._release, Hold.RATE)

    def _wait_for_room(self) -> None:
        self._hold(Hold.ROOM)
        self._port.when_room(self._room)

    def _room(self) -> None:
        """The port takes arrivals again: first the one that it did not take."""
        kept, self._kept = self._kept, None
        if self._stopped:
            return
        if kept is not None:
            self._put(kept)
        if self._kept is None:
            self._release(Hold.ROOM)

    def _committed(self, ticket: Ticket, receipt: Receipt) -> None:  # noqa: ARG002 (all receipts are acknowledged)
        self._session.window.committed(ticket)
        if not self._flushing:
            self._flushing = True
            self._schedule(self._flush)

    def _flush(self) -> None:
        """The end of a turn in which something was committed: acknowledge it, and read on if the window has room."""
        self._flushing = False
        if not self._stopped:
            self.acknowledge()
            self.perform(self._session.inbound.release_early())
            if self._held & Hold.WINDOW and not self._session.full:
                self._release(Hold.WINDOW)

    def _hold(self, why: Hold) -> None:
        if not self._held and not self._stopped:
            self._transport.pause_reading()
        self._held |= why

    def _release(self, why: Hold) -> None:
        self._held &= ~why
        if not self._held and not self._stopped:
            now = self._heard = self._loop.time()
            if self._unfinished_since is not None:
                self._unfinished_since = now
            self._transport.resume_reading()
            self._pump(now)
