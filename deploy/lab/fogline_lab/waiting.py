"""Waiting for a condition that gives no event: counters, other threads, other processes."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from fogline_lab.amqp import within

LIMIT_S = 60.0
PAUSE_S = 0.01

Condition = Callable[[], object | Awaitable[object]]
"""A function, or a coroutine function, whose result counts as true or false."""


async def until(condition: Condition, what: str, limit_s: float = LIMIT_S, *, pause_s: float = PAUSE_S) -> None:
    """Check `condition` every `pause_s` until it holds. Raises `AssertionError` with `what` after `limit_s`."""

    async def wait() -> None:
        while not await _holds(condition):  # noqa: ASYNC110 - the condition gives no event
            await asyncio.sleep(pause_s)

    await within(wait(), what, limit_s)


async def until_not(condition: Condition, what: str, limit_s: float = LIMIT_S) -> None:
    """Check `condition` until it does not hold any more, as `until` does."""

    async def is_over() -> bool:
        return not await _holds(condition)

    await until(is_over, what, limit_s)


async def eventually(condition: Condition, what: str, limit_s: float = 60.0) -> None:
    """Wait as `until` does, with a check at each millisecond. `what` names the expected state."""
    await until(condition, f"not so: {what}", limit_s, pause_s=0.001)


async def _holds(condition: Condition) -> bool:
    found = condition()
    return bool(await found if inspect.isawaitable(found) else found)
