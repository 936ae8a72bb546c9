"""A slow line between two TCP ends: a proxy on loopback that passes a fixed number of bits a second each way.

Both legs get small socket buffers, so that it is the line that holds bytes back and not a buffer within the proxy.
"""

import asyncio
import contextlib
import socket
import time
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

_BUFFER_BYTES = 8 * 1024


class SlowLine:
    """`async with SlowLine(port, bits_per_s) as line:` and connect to `line.port` instead of `port`.

    `delay_s` is added one way.
    """

    def __init__(self, target_port: int, bits_per_s: float, delay_s: float = 0.0) -> None:
        self.port = 0
        self._target = target_port
        self._bytes_per_s = bits_per_s / 8
        self._delay_s = delay_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None

    async def __aenter__(self) -> Self:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._listening = listening
        self._spawn(self._accept(listening))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="slow-line")
        self._tasks.add(task)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(listening)
            self._spawn(self._join(near))

    async def _join(self, near: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        far = socket.socket()
        try:
            for end in (near, far):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            with contextlib.suppress(OSError):
                await loop.sock_connect(far, ("127.0.0.1", self._target))
                await asyncio.gather(self._pass(near, far), self._pass(far, near))
        finally:
            near.close()
            far.close()

    async def _pass(self, source: socket.socket, target: socket.socket) -> None:
        """Pace what is read, hold it for the delay, write it."""
        loop = asyncio.get_running_loop()
        chunk = max(256, min(4096, int(self._bytes_per_s / 50)))
        in_flight = max(4, int(self._bytes_per_s * (self._delay_s + 0.02) / chunk) + 1)
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(in_flight)
        writer = loop.create_task(self._write(line, target))
        free_at = time.monotonic()
        try:
            while data := await loop.sock_recv(source, chunk):
                free_at = max(free_at, time.monotonic()) + len(data) / self._bytes_per_s
                await asyncio.sleep(max(0.0, free_at - time.monotonic()))
                await line.put((time.monotonic() + self._delay_s, data))
            await line.put((0.0, b""))
            await writer
        finally:
            writer.cancel()

    async def _write(self, line: asyncio.Queue[tuple[float, bytes]], target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await line.get()
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await loop.sock_sendall(target, data)
