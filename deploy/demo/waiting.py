"""Waiting for what can only be looked at from outside."""

import asyncio
import math
import time
from collections.abc import Callable

_LOOK_S = 0.05


async def until(condition: Callable[[], bool], limit_s: float = math.inf) -> bool:
    """Return once `condition` holds, or after `limit_s`; whether it holds. Safe to cancel."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True
