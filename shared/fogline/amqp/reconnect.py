"""When to try again: full jitter, so that a thousand gateways do not come back in step. Pure."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays drawn from [0, min(cap, base * 2^n)] after the n-th failure in a row, all in seconds."""

    base_s: float = 1.0
    cap_s: float = 60.0
    draw: Callable[[float, float], float] = random.uniform
    failures: int = field(default=0, init=False)

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Count a failure and say how long to wait. `at_least_s`: the peer's own wish, which jitter is added to."""
        ceiling = min(self.cap_s, self.base_s * 2 ** min(self.failures, 16))
        self.failures += 1
        return at_least_s + self.draw(0.0, ceiling)

    def stable(self) -> None:
        """The connection has lasted: forget the failures."""
        self.failures = 0
