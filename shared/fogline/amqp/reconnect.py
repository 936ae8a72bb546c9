"""When to try again: full jitter, so that a thousand gateways do not come back in step. Pure."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

LONGEST_WISH_S = 3600.0
"""A peer that asks for a longer pause is asked again after this."""


@dataclass(slots=True)
class Backoff:
    """Delays drawn from [0, min(cap, base * 2^n)] after the n-th failure in a row, all in seconds."""

    base_s: float = 1.0
    cap_s: float = 60.0
    draw: Callable[[float, float], float] = random.uniform
    failures: int = field(default=0, init=False)

    def next_s(self) -> float:
        """Count a failure and say how long to wait."""
        ceiling = min(self.cap_s, self.base_s * 2 ** min(self.failures, 16))
        self.failures += 1
        return self.draw(0.0, ceiling)

    def asked_s(self, wish_s: float) -> float:
        """The peer is there and says when to come back: its wish, and a little jitter. It counts as no failure."""
        return min(max(wish_s, 0.0), LONGEST_WISH_S) + self.draw(0.0, self.base_s)

    def stable(self) -> None:
        """The connection has lasted: forget the failures."""
        self.failures = 0
