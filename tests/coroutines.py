"""Runs tests that are coroutines. What one leaves behind, and waits for ever, fails the test, but never hangs the run."""

import asyncio
import inspect
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fogline_lab.clock import MovedLoop

LEFT_S = 60.0
"""Time that tasks and threads have to end after the test."""


def run_test(item: pytest.Function, *, strict: bool = False) -> bool | None:
    """Run a test in a loop of its own, whose clock `pass_time` advances. Returns None if it is no coroutine.

    `strict`: it fails for every error that the loop caught. The alarm of a test that takes too long may come while the loop
    runs a callback. The loop would catch that error too.
    """
    if not inspect.iscoroutinefunction(item.obj):
        return None
    caught: list[dict[str, Any]] = []
    timed_out: list[BaseException] = []

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, pytest.fail.Exception):
            timed_out.append(error)
            loop.stop()
        elif strict:
            caught.append(context)
        else:
            loop.default_exception_handler(context)

    loop = MovedLoop()
    asyncio.set_event_loop(loop)
    executor = ThreadPoolExecutor(thread_name_prefix=f"to_thread of {item.nodeid}")
    loop.set_default_executor(executor)
    loop.set_exception_handler(on_error)
    try:
        loop.run_until_complete(item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames}))
        assert caught == []
    except RuntimeError:
        if timed_out:
            raise timed_out[0] from None
        raise
    finally:
        tasks = _end_tasks(loop)
        executor.shutdown(wait=False, cancel_futures=True)
        left = [*tasks, *_end_threads(f"to_thread of {item.nodeid}")]
        print(*left, sep="\n")
        asyncio.set_event_loop(None)
        loop.close()
    assert not left, "the test leaves tasks or threads behind, see above"
    return True


def _end_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Cancel all tasks. Returns those that do not end."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if not tasks:
        return []
    done, left = loop.run_until_complete(asyncio.wait(tasks, timeout=LEFT_S))
    for task in done:
        task.cancelled() or task.exception()
    loop.run_until_complete(loop.shutdown_asyncgens())
    return [str(task) for task in left]


def _end_threads(prefix: str) -> list[str]:
    """Wait for the threads with a name. Returns the stacks of those that do not end."""
    deadline, left = time.monotonic() + LEFT_S, []
    for thread in threading.enumerate():
        if thread.name.startswith(prefix):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive() and thread.ident is not None:
                left.append("".join(traceback.format_stack(sys._current_frames()[thread.ident])))
    return left
