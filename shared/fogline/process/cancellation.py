"""The end of asyncio tasks, by cancellations that cannot be lost.

Python 3.11 loses a cancellation that meets something else at the same moment: a `TaskGroup` raises the error of a child
instead, `asyncio.wait_for` returns the result that has just arrived, and an error in a `finally` block replaces it. The task
then goes on, and waits for something that nobody will send. `Task.cancelling()` still counts the cancellation, so it is a
state as well as an exception. Fogline uses `asyncio.timeout` instead of `wait_for`, and `tests/rules` checks it.
"""

import asyncio
from typing import Any

AGAIN_S = 5.0
"""Interval at which `end_tasks` repeats a cancellation, longer than the limits of the clean-ups."""


def raise_if_cancelled() -> None:
    """Raise `CancelledError` if the current task was cancelled. Call it after `except*` and after a `TaskGroup` with errors."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until all have ended; their errors stay in them. One that has lost its cancellation gets another.

    Safe to cancel: the tasks are cancelled then, but may still be running.
    """
    left = {each for each in tasks if not each.done()}
    while left:
        for each in left:
            each.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN_S)
