"""Calls from any thread into an event loop, and work of an event loop on threads."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call `call` on the loop. May be used on any thread. Does nothing once the loop is closed: no one waits any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


async def on_thread(name: str, work: Callable[[], R]) -> R:
    """Return what `work` returns, or raise its error. Cancelling ends the wait, not the work.

    The thread ends with the process, while one of asyncio's own keeps the process until its work is done.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[R] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - whoever waits gets it
            call_soon(loop, _end, done, error)
        else:
            call_soon(loop, _end, done, None, result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done


def _end(done: "asyncio.Future[R]", error: Exception | None, *result: R) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(*result)
