"""TCP line on loopback: a proxy whose connections are slow, cut, half-open, or refused, as a test asks.

A half-open connection shows in one of two ways. With `SWALLOW` the line takes everything and passes nothing on, as a
peer whose machine froze after its kernel had acknowledged. With `STALL` it takes nothing, as a cable that was pulled.
"""

import asyncio
import contextlib
import enum
import socket
import struct
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

HELD_S = 90.0
"""Life of a connection that passes nothing on: longer than any peer waits for it."""
_PIECE_BYTES = 16 * 1024
_SLOW_BUFFER_BYTES = 8 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class LineFault(enum.Enum):
    """Fault of the connections that exist; new ones are not affected."""

    SWALLOW = "everything is taken, nothing is passed on"
    STALL = "nothing is taken"
    RESET = "both ends are reset, with half of the last piece passed on"
    CLOSE = "both ends are closed in order, in mid-stream"


HALF_OPEN = (LineFault.SWALLOW, LineFault.STALL)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Fault of one connection: after so many bytes of both directions, or at the first piece after so many seconds."""

    fault: LineFault
    after_bytes: int
    after_s: float


def no_fault() -> PlannedFault | None:
    """Plan no fault for a connection."""
    return None


class TcpLine:
    """`async with TcpLine(target) as line:` and connect to `line.port`; `target` is a port of loopback, and may be changed.

    `plan` is called for each new connection. `bits_per_s` is the rate of each direction, 0 for no limit; `delay_s` is added
    one way. `refusing`: the line resets each new connection at once. `piece_bytes`: the most that it passes on at once.

    `arrivals`: the monotonic time of each connection. `failed`: the planned faults that came true, in order.
    """

    def __init__(
        self,
        target: int,
        plan: Callable[[], PlannedFault | None] = no_fault,
        *,
        bits_per_s: float = 0.0,
        delay_s: float = 0.0,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        self.port = 0
        self.target = target
        self.plan = plan
        self.refusing = False
        self.bits_per_s = bits_per_s
        self.delay_s = delay_s
        self.arrivals: list[float] = []
        self.failed: list[LineFault] = []
        self._piece_bytes = piece_bytes
        # On a slow line the proxy's own socket buffers must not hold more than the line: the sender would see no back-pressure.
        self._buffer_bytes = _SLOW_BUFFER_BYTES if bits_per_s else 0
        self._connections: list[_LineConnection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None

    async def __aenter__(self) -> Self:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes or _PIECE_BYTES)
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._listening = listening
        self._spawn(self._accept(listening))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    def fail(self, fault: LineFault) -> None:
        """Apply a fault to all connections that exist, from now on."""
        for each in list(self._connections):
            each.fail(fault)

    def cut(self) -> None:
        """Reset all connections."""
        for each in list(self._connections):
            each.cut()

    @property
    def piece_bytes(self) -> int:
        """The most that is passed on at once: on a slow line, 20 ms of its rate."""
        slow = max(256, min(4096, int(self.bits_per_s / 8 / 50)))
        return min(self._piece_bytes, slow) if self.bits_per_s else self._piece_bytes

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="tcp-line")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(listening)
            near.setblocking(False)
            self.arrivals.append(time.monotonic())
            if self.refusing:
                _reset(near)
            else:
                self._spawn(self._join(near))

    async def _join(self, near: socket.socket) -> None:
        far = socket.socket()
        far.setblocking(False)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._buffer_bytes:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer_bytes)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._buffer_bytes)
        connection = _LineConnection(self, near, far)
        self._connections.append(connection)
        try:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", self.target))
                await connection.run()
        finally:
            self._connections.remove(connection)
            for end in (near, far):
                if connection.closed_in_order:
                    end.close()
                else:
                    _reset(end)


class _LineConnection:
    """One connection: both directions, each passed on by a task of its own."""

    def __init__(self, line: TcpLine, near: socket.socket, far: socket.socket) -> None:
        self.fault: LineFault | None = None
        self.closed_in_order = False
        self._line = line
        self._plan = line.plan()
        self._began = time.monotonic()
        self._passed = 0
        self._directions = [(near, far), (far, near)]
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Pass on until both ends have closed, one end fails, or `cut`."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pass(*each), name="tcp-direction") for each in self._directions]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.cut()
            ends = await asyncio.gather(*self._tasks, return_exceptions=True)
            self.closed_in_order = self.fault is LineFault.CLOSE or ends == [None, None]

    def fail(self, fault: LineFault) -> None:
        """Apply a fault from now on; a connection keeps its first one."""
        self.fault = self.fault or fault
        if self.fault not in HALF_OPEN:
            self.cut()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _pass(self, source: socket.socket, target: socket.socket) -> None:
        """Pass one direction on. At its end, close the target for writing: the other direction may still have data."""
        loop = asyncio.get_running_loop()
        line = self._line
        free_at = time.monotonic()
        in_flight = int(line.bits_per_s / 8 * (line.delay_s + 0.02) / line.piece_bytes) + 4
        delayed = _DelayedWriter(target, line.delay_s, in_flight) if line.delay_s else None
        try:
            while data := await loop.sock_recv(source, line.piece_bytes):
                self._apply_plan(len(data))
                match self.fault:
                    case None:
                        if line.bits_per_s:
                            free_at = max(free_at, time.monotonic()) + 8 * len(data) / line.bits_per_s
                            await asyncio.sleep(free_at - time.monotonic())
                        await (delayed.write(data) if delayed else loop.sock_sendall(target, data))
                    case LineFault.STALL:
                        await asyncio.sleep(HELD_S)
                        self.cut()
                        return
                    case LineFault.RESET | LineFault.CLOSE:
                        await loop.sock_sendall(target, data[: len(data) // 2])
                        self.cut()
                        return
            if delayed is not None:
                await delayed.finish()
            target.shutdown(socket.SHUT_WR)
        finally:
            if delayed is not None:
                delayed.close()

    def _apply_plan(self, count: int) -> None:
        self._passed += count
        plan = self._plan
        if self.fault is not None or plan is None:
            return
        if self._passed >= plan.after_bytes or time.monotonic() - self._began >= plan.after_s:
            self.fault = plan.fault
            self._line.failed.append(self.fault)


class _DelayedWriter:
    """Writes each piece `delay_s` after it was given. At most `in_flight` pieces wait, for back-pressure on the reader."""

    def __init__(self, target: socket.socket, delay_s: float, in_flight: int) -> None:
        self._target = target
        self._delay_s = delay_s
        self._pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(in_flight)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="tcp-delay")

    async def write(self, data: bytes) -> None:
        await self._pieces.put((time.monotonic() + self._delay_s, data))

    async def finish(self) -> None:
        """Return when everything is written."""
        await self._pieces.put((0.0, b""))
        await self._task

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        with contextlib.suppress(OSError):  # the other direction sees the error too, and ends the connection
            while True:
                due, data = await self._pieces.get()
                if not data:
                    return
                await asyncio.sleep(due - time.monotonic())
                await asyncio.get_running_loop().sock_sendall(self._target, data)


def _reset(end: socket.socket) -> None:
    """Close the socket so that the peer sees a reset, not an orderly end."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    end.close()
