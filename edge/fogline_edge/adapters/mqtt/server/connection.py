"""The life of one client's socket. It needs no task of its own, and logs no single message."""

import asyncio
import contextlib
import logging
import re
import socket
from typing import Protocol

from fogline.address import shown
from fogline.process.log_throttle import LogThrottle
from fogline.transport.certificate_names import CertificateNames
from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.server.deadline_timer import DeadlineTimer
from fogline_edge.adapters.mqtt.server.effect_runner import ListenerContext
from fogline_edge.adapters.mqtt.server.reader import PacketReader
from fogline_edge.adapters.mqtt.session import client_protocol
from fogline_edge.adapters.mqtt.session.client_protocol import ClientProtocol
from fogline_edge.adapters.mqtt.session.effects import ClientAccepted, Close, CloseReason, LastWill, Verify
from fogline_edge.adapters.send_limit import discard
from fogline_edge.adapters.sockets.layer import LayeredConnection
from fogline_edge.adapters.users import UserSecret

_log = logging.getLogger(__name__)
_log.addFilter(
    LogThrottle(variable=re.compile(r" at \S+| \(client .*\)$"))
)  # so that a flood of refused peers does not fill the disk

WRITE_BUFFER_BYTES = 65_536
"""The most bytes that wait for a client that does not read. Beyond that the connection ends."""
DRAIN_S = 10.0
"""Time limit for a client to read a command that is larger than the write buffer."""
_SLOW = "the client does not read"
_LINGER_S = 1.0  # time limit for a client to read the last packet
_NOTED = (CloseReason.REFUSED, CloseReason.MALFORMED, CloseReason.OVER_LIMIT)


class ConnectionOwner(ListenerContext, Protocol):
    """The listener, as a connection sees it."""

    def joined(self, connection: "ClientConnection", host: str) -> bool:
        """Add a new socket. `host`: the peer's address. Returns False if there is no room for it."""

    def opened(self, connection: "ClientConnection", accepted: ClientAccepted) -> None:
        """Register the connection's client."""

    def verify(self, connection: "ClientConnection", verify: Verify) -> None:
        """Check a password, then call `connection.reader.verified`."""

    def ended(self, connection: "ClientConnection", key: ClientKey | None, will: LastWill | None) -> None:
        """Note that the connection has ended; its socket may linger."""

    def gone(self, connection: "ClientConnection") -> None:
        """Remove the closed socket."""


class ClientConnection(LayeredConnection):
    """One client's socket. `ending`: the connection has ended; the socket may linger. `protocol`: its state machine.

    `address`: the client's, without the port.
    """

    reader: PacketReader
    _transport: asyncio.Transport
    _silence: DeadlineTimer

    def __init__(self, owner: ConnectionOwner) -> None:
        self.ending = False
        self.address = ""
        self.login: tuple[str, UserSecret] | None = None
        """The user that has logged in by a password, and what that was compared with."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.protocol = ClientProtocol(owner.context, self._loop.time())
        self._abort_timer: asyncio.TimerHandle | None = None  # the client does not read a large command, or the last packet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the accepted socket up."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = (transport.get_extra_info("peername") or [""])[0]
        self.reader = PacketReader(self.protocol, self, transport, self._owner, self.address)
        self._silence = DeadlineTimer(self.reader.deadline, self._timed_out)
        if not self._owner.joined(self, self.address):
            self.ending = True
            transport.abort()
            return
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, WRITE_BUFFER_BYTES)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._silence.restart()

    def receive(self, data: bytes) -> None:
        """Handle received bytes. After the end they are discarded: a reset would destroy the last packet on its way out."""
        if not self.ending:
            self.reader.feed(data)
            if self.reader.unfinished_since is not None and not self.ending:
                self._silence.fire_before(self.reader.unfinished_since + client_protocol.PACKET_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after the closed socket, whichever side closed it."""
        self._conclude(CloseReason.LOST, f"the connection was lost: {exc}" if exc else "the client closed the connection")
        self._silence.cancel()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self.reader.close()
        self.reader.runner.close()
        del self.reader, self._silence  # otherwise reference cycles would wait for the garbage collector
        self._owner.gone(self)

    def pause_writing(self) -> None:
        """Give the client time to read a large command, or events, and end the connection for anything else."""
        if (self.reader.runner.bulky or self.protocol.reads_events) and not self.ending:
            self.reader.pause(paused=True)
            self._abort_timer = self._loop.call_later(DRAIN_S, self.drop, CloseReason.SLOW_READER, _SLOW)
        else:
            self.drop(CloseReason.SLOW_READER, _SLOW)

    def resume_writing(self) -> None:
        """Continue: the client reads again."""

        def drained() -> None:
            if not self.ending and self._abort_timer is None:
                self.reader.pause(paused=False)

        if self._abort_timer is not None and not self.ending:
            self._abort_timer.cancel()
            self._abort_timer = None
            self._loop.call_soon(drained)  # asyncio would end a transport twice that is closed within this call

    def secured(self, names: CertificateNames | None) -> None:
        """See `LayeredConnection.secured`."""
        self.protocol.certificate = names

    def refuse(self, why: str) -> None:
        """See `LayeredConnection.refuse`."""
        self.finish(Close(b"", CloseReason.REFUSED if self.protocol.key is None else CloseReason.MALFORMED, why))

    def opened(self, accepted: ClientAccepted) -> None:
        """Register the accepted client."""
        self._owner.opened(self, accepted)
        self.reader.admit()
        self._silence.restart()

    def verify(self, verify: Verify) -> None:
        """Check a password, then call `PacketReader.verified`."""
        self._owner.verify(self, verify)

    def disconnect(self, code: Reason, reason: CloseReason, detail: str, *, resumed: bool = False) -> None:
        """End from this side with a DISCONNECT (5: 3.14). `resumed`: another connection continues the session."""
        self.finish(self.protocol.disconnect(code, reason, detail), resumed=resumed)

    def drop(self, reason: CloseReason, detail: str) -> None:
        """End at once, without a packet. Bytes that the client's TCP has not got are discarded: a command may be among them."""
        self._conclude(reason, detail)
        _close(self._transport, self.protocol)

    def finish(self, close: Close, *, resumed: bool = False) -> None:
        """End from this side: send the due PUBACKs and the last packet, then wait a moment for the client to read them."""
        if self.ending:
            return
        self.reader.runner.acknowledge()
        if not self._conclude(close.reason, close.detail, resumed=resumed):
            return
        self._silence.cancel()
        self._transport.resume_reading()
        if close.data:
            self._transport.write(close.data)
        if close.reason is CloseReason.LEFT:
            self._transport.close()
        elif self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has cut the connection, and the loop has not noticed yet
                self._transport.write_eof()
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._abort_timer = self._loop.call_later(_LINGER_S, _close, self._transport, self.protocol)

    def _conclude(self, reason: CloseReason, detail: str, *, resumed: bool = False) -> bool:
        """End the connection, and give its will to the owner. Returns False if it had ended before."""
        if self.ending:
            return False
        self.ending = True
        self.reader.close()
        counters, key, runner = self._owner.counters, self.protocol.key, self.reader.runner
        setattr(counters, reason, getattr(counters, reason) + 1)
        level = logging.INFO if reason in _NOTED or (key is None and reason is CloseReason.TIMED_OUT) else logging.DEBUG
        client = "a client" if key is None else f"client {shown(key[1])}"
        text, extra = "the connection of %s at %s ended (%s): %s", {"reason": reason.value}
        _log.log(level, text, client, _address(self._transport), reason, detail, extra=extra)
        now, taken_over, drained = self._loop.time(), reason is CloseReason.TAKEN_OVER, runner.drained()
        ended = self.protocol.end(now, taken_over=taken_over, resumed=resumed, drained=drained)
        runner.perform(ended.effects)
        self._owner.ended(self, key, ended.will)
        return True

    def _timed_out(self) -> None:
        if self.handshake:
            self.finish(Close(b"", CloseReason.TIMED_OUT, f"the {self.handshake} handshake did not end in time"))
            return
        awaited = "packet" if self.protocol.key is not None else "CONNECT"
        self.disconnect(Reason.KEEP_ALIVE_TIMEOUT, CloseReason.TIMED_OUT, f"the client sent no {awaited} in time")


def _close(transport: asyncio.Transport, protocol: ClientProtocol) -> None:
    if protocol.key is not None:
        discard(transport)
    else:  # no command was sent
        transport.abort()


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return "{}:{}".format(*peer) if peer else "an unknown address"
