"""Pauses between attempts, with full jitter, so that a thousand gateways do not reconnect at the same time. Pure."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_REQUESTED_S = 3600.0
"""Limit of a pause that a peer may ask for."""


@dataclass(slots=True)
class Backoff:
    """Draws pauses from [0, min(cap, base * 2^n)] after the n-th failure in a row. All times are in seconds."""

    base_s: float = 1.0
    cap_s: float = 60.0
    draw: Callable[[float, float], float] = random.uniform
    failures: int = field(default=0, init=False)

    def next_s(self) -> float:
        """Count a failure, and return the pause."""
        ceiling = min(self.cap_s, self.base_s * 2 ** min(self.failures, 16))
        self.failures += 1
        return self.draw(0.0, ceiling)

    def requested_s(self, wanted_s: float) -> float:
        """Return the pause that a peer asked for, with some jitter. It does not count as a failure."""
        return min(max(wanted_s, 0.0), MAX_REQUESTED_S) + self.draw(0.0, self.base_s)

    def stable(self) -> None:
        """Forget the failures, after a connection that lasted."""
        self.failures = 0
