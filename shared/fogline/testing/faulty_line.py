"""A TCP line on loopback whose faults are switched on and off: half-open, dead, cut, nobody there.

What a half-open connection looks like depends on what is left of the way: `SWALLOW` takes everything and passes nothing
on, as a peer whose machine froze after its kernel had acknowledged; `STALL` takes nothing, as a cable that was pulled.
"""

import asyncio
import contextlib
import enum
import socket
import struct
import time
from types import TracebackType
from typing import Self

_BUFFER_BYTES = 16 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Fault(enum.Enum):
    """What happens to the connections that are there; new ones are not touched."""

    SWALLOW = "everything is taken, nothing is passed on"
    STALL = "nothing is taken"


class FaultyLine:
    """`async with FaultyLine(target) as line:` and connect to `line.port`.

    `away`: connections are reset as soon as they come. `arrivals`: when each of them came, on the monotonic clock.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self.target = target
        self.away = False
        self.arrivals: list[float] = []
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
        for each in self._joined:
            each.fault = how

    def cut(self) -> None:
        """Reset all connections."""
        for each in list(self._joined):
            each.cut()

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
        joined = _Joined(near, far)
        self._joined.append(joined)
        try:
            with contextlib.suppress(OSError):
                await asyncio.get_running_loop().sock_connect(far, ("127.0.0.1", self.target))
                await joined.run()
        finally:
            self._joined.remove(joined)
            _reset(near)
            _reset(far)


class _Joined:
    """Both legs of one connection."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.fault: Fault | None = None
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

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _pass(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(source, _BUFFER_BYTES):
                if self.fault is Fault.STALL:
                    await loop.create_future()  # until somebody cuts it
                elif self.fault is None:
                    await loop.sock_sendall(target, data)


def _reset(end: socket.socket) -> None:
    """Close so that the peer sees a reset, not an orderly end."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    end.close()
