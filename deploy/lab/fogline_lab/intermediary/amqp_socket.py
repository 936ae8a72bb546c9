"""One AMQP connection that a program accepts, with asyncio."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Protocol

import proton

from fogline_lab.intermediary.accepting_engine import AcceptingEngine, Door
from fogline_lab.intermediary.outgoing_queues import CHUNK_BYTES, OutgoingQueues

_TICK_S = 1.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class SocketOwner(Protocol):
    """The program that has accepted a connection. Its methods are called on the loop."""

    def event(self, connection: "AmqpSocket", event: Any) -> None:
        """An event of proton's engine has happened."""

    def ended(self, connection: "AmqpSocket") -> None:
        """The connection is over. Called once."""


class AmqpSocket(asyncio.Protocol):
    """One accepted connection. `outgoing`: its messages that wait to be sent. `native`: proton's connection.

    `frozen`: nothing is read, written or kept alive, as by a process that was stopped. `name`: the peer's container.
    """

    def __init__(self, owner: SocketOwner, door: Door, container: str) -> None:
        self.frozen = False
        self.name = ""
        self.outgoing = OutgoingQueues()
        self._owner = owner
        self._engine = AcceptingEngine(door, container)
        self.native = self._engine.connection
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._paused = self._in_turn = self._again = self._over = False

    # --- what the owner does

    def open(self) -> None:
        """Answer the peer's open frame. Properties of other peers' open frames are not passed on."""
        self.name = self.native.remote_container or ""
        self.native.open()

    def close(self, condition: str = "", why: str = "") -> None:
        """Close the connection in order, with a reason if there is one."""
        if condition:
            self.native.condition = proton.Condition(condition, why)
        self.native.close()
        self.turn()

    def reset(self) -> None:
        """Break the socket off, as the end of the process or a cut would."""
        if self._transport is None or self._over:
            return
        sock: socket.socket = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def freeze(self, *, frozen: bool) -> None:
        """Stop, with the socket open and nothing moving, or go on."""
        self.frozen = frozen
        if self._transport is None or self._transport.is_closing():
            return
        if frozen:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            self.turn()

    def turn(self) -> None:
        """Handle events and write, until there is nothing more to do. A call within a turn repeats it."""
        if self._in_turn:
            self._again = True
            return
        if self._transport is None or self._over or self.frozen:
            return
        self._in_turn = self._again = True
        try:
            while self._again and not self.frozen:
                self._again = False
                self._engine.handle_events(lambda event: self._owner.event(self, event))
                self._write(self._transport)
        finally:
            self._in_turn = False

    def soon(self) -> None:
        """Take a turn after the present call."""
        asyncio.get_running_loop().call_soon(self.turn)

    def _write(self, transport: asyncio.Transport) -> None:
        while not self._paused and not transport.is_closing():
            if data := self._engine.data_to_send():
                transport.write(data)
            elif self._engine.finished:
                transport.close()
            elif not self.outgoing.hand_over():
                return

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a connected socket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=CHUNK_BYTES)
        self._tick()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self._engine.receive(data)
        self.turn()

    def eof_received(self) -> bool:
        """Take the end of the peer's bytes."""
        self._engine.receive_eof()
        self.turn()
        return False

    def pause_writing(self) -> None:
        """Stop writing: the socket takes no more for now."""
        self._paused = True

    def resume_writing(self) -> None:
        """Write again."""
        self._paused = False
        self.soon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """End."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner.ended(self)
        self.outgoing.clear()

    def _tick(self) -> None:
        if not self.frozen:
            self._engine.tick(time.monotonic())
            self.turn()
        self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)


async def serve(make: Callable[[], AmqpSocket], port: int) -> tuple[asyncio.Server, int]:
    """Listen at a port of loopback, 0 for a free one. Returns the server and its port."""
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", port)
    return server, int(server.sockets[0].getsockname()[1])
