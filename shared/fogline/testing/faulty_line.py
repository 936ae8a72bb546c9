"""A TCP line on loopback whose faults are switched on and off: reset, closed, half-open, slow, nobody there.

What a half-open connection looks like depends on what is left of the way: `SWALLOW` takes everything and passes nothing
on, as a peer whose machine froze after its kernel had acknowledged; `STALL` takes nothing, as a cable that was pulled.
"""

import asyncio
import contextlib
import enum
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

HELD_S = 90.0
"""How long a line keeps a connection that it passes nothing on for: longer than anybody believes in it."""
_BUFFER_BYTES = 16 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Fault(enum.Enum):
    """What happens to the connections that are there; new ones are not touched."""

    SWALLOW = "everything is taken, nothing is passed on"
    STALL = "nothing is taken"
    RESET = "both ends are reset, with half of what was on its way passed on"
    CLOSE = "both ends are closed in order, in mid-stream"


HALF_OPEN = (Fault.SWALLOW, Fault.STALL)


@dataclass(frozen=True, slots=True)
class Fate:
    """What a connection comes to after so many bytes of both ways together, or when something passes after so long."""

    fault: Fault
    after_bytes: int
    after_s: float


def _no_fate() -> Fate | None:
    return None


class FaultyLine:
    """`async with FaultyLine(target) as line:` and connect to `line.port`.

    `away`: connections are reset as soon as they come. `fate`: asked for each new connection. `bits_per_s`: how much is
    passed on each way of each connection, 0 for everything. `arrivals`: when each connection came, on the monotonic clock.
    `failed`: by which faults, in order, connections came to their fate.
    """

    def __init__(self, target: int, fate: Callable[[], Fate | None] = _no_fate) -> None:
        self.port = 0
        self.target = target
        self.fate = fate
        self.away = False
        self.bits_per_s = 0.0
        self.arrivals: list[float] = []
        self.failed: list[Fault] = []
        self._joined: list[_Joined] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None

    async def __aenter__(self) -> Self:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
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

    def fail(self, how: Fault) -> None:
        """From now on, for all connections that are there."""
        for each in list(self._joined):
            each.fail(how)

    def cut(self) -> None:
        """Reset all connections at once."""
        for each in list(self._joined):
            each.cut()

    @property
    def open(self) -> int:
        """How many connections are there."""
        return len(self._joined)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(work, name="faulty-line")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(listening)
            near.setblocking(False)
            self.arrivals.append(time.monotonic())
            if self.away:
                _reset(near)
            else:
                self._spawn(self._join(near))

    async def _join(self, near: socket.socket) -> None:
        far = socket.socket()
        far.setblocking(False)
        joined = _Joined(self, near, far)
        self._joined.append(joined)
        try:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", self.target))
                await joined.run()
        finally:
            self._joined.remove(joined)
            for end in (near, far):
                if joined.fault is Fault.CLOSE:
                    end.close()
                else:
                    _reset(end)


class _Joined:
    """Both legs of one connection."""

    def __init__(self, line: FaultyLine, near: socket.socket, far: socket.socket) -> None:
        self.fault: Fault | None = None
        self._line = line
        self._fate = line.fate()
        self._began = time.monotonic()
        self._passed = 0
        self._ways = [(near, far), (far, near)]
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Pass on until one end closes, or `cut`."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pass(*way), name="faulty-way") for way in self._ways]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def fail(self, how: Fault) -> None:
        """From now on; a connection that fails already keeps to it."""
        self.fault = self.fault or how
        if self.fault not in HALF_OPEN:
            self.cut()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _pass(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, _BUFFER_BYTES):
                self._meet_fate(len(data))
                match self.fault:
                    case None:
                        if self._line.bits_per_s:
                            await asyncio.sleep(8 * len(data) / self._line.bits_per_s)
                        await loop.sock_sendall(target, data)
                    case Fault.STALL:
                        await asyncio.sleep(HELD_S)
                        return
                    case Fault.RESET | Fault.CLOSE:
                        await loop.sock_sendall(target, data[: len(data) // 2])
                        return

    def _meet_fate(self, count: int) -> None:
        self._passed += count
        fate = self._fate
        if self.fault is not None or fate is None:
            return
        if self._passed >= fate.after_bytes or time.monotonic() - self._began >= fate.after_s:
            self.fault = fate.fault
            self._line.failed.append(self.fault)


def _reset(end: socket.socket) -> None:
    """Close so that the peer sees a reset, not an orderly end."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    end.close()
