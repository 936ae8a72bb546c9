"""Polling of conditions that give no event."""

import asyncio
import math
import time
from collections.abc import Callable

_LOOK_S = 0.05


async def until(condition: Callable[[], bool], limit_s: float = math.inf) -> bool:
    """Wait until `condition` holds, at most `limit_s`. Returns True if it holds. Safe to cancel."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_LOOK_S)
    return True
