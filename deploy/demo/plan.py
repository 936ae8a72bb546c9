"""Who is killed next, and when it is enough. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

ROUND = ("gateway-1", "bridge-1", "spark", "gateway-2", "bridge-1", "spark")
ENOUGH = 2
"""How often each kind has to be killed."""


@dataclass(slots=True)
class Kill:
    """One kill. `rate`: acknowledged events/s in the second before. `at_s`: since the devices began.

    Filled in as it recovers: `back_s` until it was ready again; `flowing_s` until something had gone through it again;
    `told_late`: events that were in Kafka at its kill, while the gateways had not noted that they were.
    """

    part: str
    at_s: float
    rate: float
    back_s: float | None = None
    flowing_s: float | None = None
    told_late: int = 0


def kind(part: str) -> str:
    """`gateway-2` is a gateway."""
    return part.partition("-")[0]


def next_victim(killed: Sequence[str]) -> str:
    """Round and round."""
    return ROUND[len(killed) % len(ROUND)]


def by_kind(killed: Sequence[str]) -> dict[str, int]:
    """How often each kind was killed."""
    counts = Counter(kind(part) for part in killed)
    return {name: counts[name] for name in ("gateway", "bridge", "spark")}


def enough(killed: Sequence[str]) -> bool:
    """Whether every kind was killed often enough."""
    return min(by_kind(killed).values()) >= ENOUGH
