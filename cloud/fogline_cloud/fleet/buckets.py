"""The steps by which table `fleet` counts sizes and delays, and percentiles of such counts. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import numpy as np

AHEAD = timedelta(minutes=5)
"""A device whose own time is further after that of its gateway has a wrong clock."""
BEHIND = timedelta(days=7)
"""A device whose own time is further before that of its gateway has a wrong clock, or kept the event for so long."""
_EXACT = 16  # sizes up to this have a step of their own
_PARTS = 8  # steps in each power of two above
_MOST_BYTES = 1 << 30
DELAYS_S = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
    *(3600, 2 * 3600, 6 * 3600, 12 * 3600),
    *(86_400, 2 * 86_400, 3 * 86_400, 7 * 86_400, 14 * 86_400, 30 * 86_400),
)
"""Bounds of the delays, in seconds. How many events came later than one of them is known exactly."""
_LATEST_S = 100 * 365 * 86_400  # of the last step


def _sizes() -> Iterable[int]:
    yield from range(_EXACT + 1)
    power = _EXACT
    while power < _MOST_BYTES:
        yield from (power + power * part // _PARTS for part in range(1, _PARTS + 1))
        power *= 2


SIZES_BYTES = np.array(list(_sizes()), np.int64)
"""Largest size of each step, in bytes: exact up to 16, then at most an eighth too large."""
DELAYS_MS = np.array([*DELAYS_S, _LATEST_S], np.int64) * 1000
"""Largest delay of each step, in milliseconds."""


def percentile(counts: Mapping[int, int], share: float) -> int | None:
    """Return the bound of the step in which this share of the events ends; None without events. `counts`: by bound."""
    wanted, seen = share * sum(counts.values()), 0
    for bound in sorted(counts):
        seen += counts[bound]
        if seen >= wanted and seen:
            return bound
    return None


def above(counts: Mapping[int, int], bound: int) -> int:
    """Return the number of events in steps above a bound."""
    return sum(number for each, number in counts.items() if each > bound)
