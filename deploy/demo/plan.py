"""Order of the kills, and the number of kills that is enough. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

ROUND = ("gateway-1", "bridge-1", "spark", "gateway-2", "bridge-1", "spark")
ENOUGH = 2
"""The least number of kills of each kind of part."""


@dataclass(slots=True)
class Kill:
    """One kill. `rate`: acknowledged events/s in the second before. `at_s`: since the devices began.

    `back_s`: seconds until the part was ready again. `flowing_s`: seconds until an event had passed it again.
    `page_s`: seconds until the operator's page showed it; None: it did not.
    `told_late`: events in Kafka at the kill that their gateways had not recorded as settled.
    """

    part: str
    at_s: float
    rate: float
    back_s: float | None = None
    flowing_s: float | None = None
    page_s: float | None = None
    told_late: int = 0


def kind(part: str) -> str:
    """Return the kind of a part: `gateway-2` is a gateway."""
    return part.partition("-")[0]


def next_victim(killed: Sequence[str]) -> str:
    """Return the next victim, in turn."""
    return ROUND[len(killed) % len(ROUND)]


def by_kind(killed: Sequence[str]) -> dict[str, int]:
    """Count the kills by kind of part."""
    counts = Counter(kind(part) for part in killed)
    return {name: counts[name] for name in ("gateway", "bridge", "spark")}


def enough(killed: Sequence[str]) -> bool:
    """Return True if every kind was killed at least `ENOUGH` times."""
    return min(by_kind(killed).values()) >= ENOUGH
