"""Thousands of inputs over sockets to a process, and what is left of them in it."""

import asyncio
import contextlib
import json
import resource
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from fogline.testing.amqp import within
from fuzz.forms import Case

SIDE_BY_SIDE = 16
LIMIT_S = 20.0
FLAT_BYTES = 5_000_000
T = TypeVar("T")


def resident_bytes(pid: int) -> int:
    """The resident set of a process, as Linux says it."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize()


async def census(process: asyncio.subprocess.Process) -> dict[str, int]:
    """What a process says of itself when it is asked."""
    assert process.stdout is not None
    process.send_signal(signal.SIGUSR1)
    while True:
        told = json.loads(await within(process.stdout.readline(), "the process does not answer SIGUSR1"))
        if "census" in told:
            found: dict[str, int] = told["census"]
            return found


async def settled(process: asyncio.subprocess.Process, wanted: dict[str, int]) -> dict[str, int]:
    """Ask until nothing is more than it was before, since what was cut ends in its own time."""

    async def so() -> dict[str, int]:
        while True:
            found = await census(process)
            if all(found[name] <= count for name, count in wanted.items()):
                return found
            await asyncio.sleep(0.1)

    return await within(so(), f"the counts do not come back to {wanted}", LIMIT_S)


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
    signs = ("Traceback", "an error that is not ours", "Exception in callback", "Task exception", "Fatal error")
    lines = log.splitlines()
    return [f"{line} | {' | '.join(lines[at + 1 : at + 25])}" for at, line in enumerate(lines) if any(s in line for s in signs)]


def frames_of(case: Case, but: str = "close") -> bytes:
    """A conversation as bytes, without its last frame."""
    return b"".join(data for title, data in case.data if title != but)
