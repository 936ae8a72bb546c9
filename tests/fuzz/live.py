"""Thousands of inputs over sockets to a process, and what is left of them in it."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from fogline_lab.amqp import within
from fogline_lab.memory import resident_bytes
from fogline_lab.supervisor import ChildProcess
from fuzz.forms import Case

SIDE_BY_SIDE = 16
LIMIT_S = 60.0
FLAT_BYTES = 5_000_000
MOST_ROUNDS = 3
T = TypeVar("T")


async def census(process: ChildProcess) -> dict[str, int]:
    """Ask a process for its counts by SIGUSR1."""
    process.send(signal.SIGUSR1)
    while "census" not in (line := await asyncio.to_thread(process.next_line)):
        pass
    found: dict[str, int] = line["census"]
    return found


async def settled(process: ChildProcess, wanted: dict[str, int]) -> dict[str, int]:
    """Ask until nothing is more than it was before, since what was cut ends in its own time."""

    async def so() -> dict[str, int]:
        while True:
            found = await census(process)
            if all(found[name] <= count for name, count in wanted.items()):
                return found
            await asyncio.sleep(0.1)  # another process, which only tells its counts when it is asked by SIGUSR1

    return await within(so(), f"the counts do not come back to {wanted}", LIMIT_S)


async def growth(process: ChildProcess, before_bytes: int, again: Callable[[], Awaitable[Any]]) -> int:
    """Return the bytes by which a process has grown. If they are many, `again` runs up to three times, and the last one counts.

    A heap finds its size in some rounds, which depends on how many peers are open at once; a leak grows in each.
    """
    grown = resident_bytes(process.pid) - before_bytes
    for _ in range(MOST_ROUNDS):
        if grown < FLAT_BYTES:
            break
        before_bytes = resident_bytes(process.pid)
        await again()
        grown = resident_bytes(process.pid) - before_bytes
    return grown


async def converse(port: int, data: bytes) -> bytes:
    """Send bytes, then nothing more; returns what came until the peer has closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    came = b""
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        while more := await within(reader.read(65_536), f"the connection is not ended: {data[:200].hex()}", LIMIT_S):
            came += more
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return came


async def for_each(items: Iterable[T], act: Callable[[T], Awaitable[Any]]) -> int:
    """Act on each, some side by side. Returns how many there were."""
    waiting: Iterator[T] = iter(items)
    done = 0

    async def work() -> None:
        nonlocal done
        for each in waiting:
            await act(each)
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(SIDE_BY_SIDE):
            group.create_task(work())
    return done


def unhandled(log: str) -> list[str]:
    """The lines of a log that tell of an error that nobody has handled."""
    signs = ("Traceback", "an error that is not ours", "unexpected error", "Exception in callback")
    signs += ("Task exception", "Fatal error")
    lines = log.splitlines()
    return [f"{line} | {' | '.join(lines[at + 1 : at + 25])}" for at, line in enumerate(lines) if any(s in line for s in signs)]


def frames_of(case: Case, but: str = "close") -> bytes:
    """A conversation as bytes, without its last frame."""
    return b"".join(data for title, data in case.data if title != but)
