"""A bad line for tests: a TCP proxy that cuts its connections in mid-stream, as a seed says.

What a lossy network does to TCP is delay and the end of connections, at any byte. Each connection gets a budget of
bytes; when it is spent, both ends are reset, and what was on its way is gone. Pieces are passed on in odd sizes.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class CuttingLine:
    """Listens on `port`, and forwards to `target`, which may be changed. `cuts`: how many connections were cut.

    A connection lives for `shortest` to `longest` bytes of both directions together; once `calm` is set, for ever.
    """

    def __init__(self, target: tuple[str, int], seed: str, shortest: int, longest: int) -> None:
        self.port = 0
        self.target = target
        self.calm = False
        self.cuts = 0
        self._random = random.Random(seed)
        self._between = (shortest, longest)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until its budget is spent or one end closes."""
        budget = [self._random.randint(*self._between)]
        ends = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
            ends.append(far_writer)
            ways = [
                asyncio.create_task(self._pass_on(reader, far_writer, budget), name="line-up"),
                asyncio.create_task(self._pass_on(far_reader, writer, budget), name="line-down"),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # nobody listens at the other end at present: the client sees its connection end
        finally:
            for end in ends:
                _reset(end)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(self._random.randint(1, 2000)):
                budget[0] -= len(data)
                if budget[0] <= 0 and not self.calm:
                    self.cuts += 1
                    writer.write(data[: len(data) // 2])
                    return
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close so that the peer sees a reset, not an orderly end."""
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


@asynccontextmanager
async def cutting_line(target: tuple[str, int], seed: str, *, shortest: int, longest: int) -> AsyncIterator[CuttingLine]:
    """A line that is there while the block runs."""
    line = CuttingLine(target, seed, shortest, longest)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
