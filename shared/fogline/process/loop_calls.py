"""Calls from any thread into an event loop."""

import asyncio
import contextlib
from collections.abc import Callable


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *arguments: object) -> None:
    """Call `call` on the loop. May be used on any thread. Does nothing once the loop is closed: no one waits any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)
