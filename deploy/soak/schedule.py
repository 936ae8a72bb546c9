"""Schedule of faults, drawn from a seed: the same seed and length give the same schedule. Pure."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count, pairwise, takewhile
from typing import TypeVar

from fogline.process.crash_points import CrashPoint

T = TypeVar("T")

STEP_S = 24.0
"""Pause between two kills."""
FIRST_S = 12.0
LAST_S = 20.0
"""No fault begins in this last part of the run."""
JITTER_S = 3.0
CRASHING = 0.3
"""The share of killed gateways and bridges that end once more, at a crash point, when they come back."""
LONG_AWAY = 0.3
"""The share of the other killed bridges that stay away until another one has taken over."""

GATEWAYS = ("gateway-1", "gateway-2")
BRIDGES = ("bridge-1", "bridge-2")
VICTIMS = ("gateway", "bridge", "kafka", "spark")
"""Kinds of parts that are killed."""
_TURN = ("gateway", "bridge", "kafka", "gateway", "bridge", "spark")
"""Victims of one turn, in any order. Spark is in it once: it takes longest to come back."""
_EDGE_POINTS = (CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT_BEFORE_ACK, CrashPoint.AFTER_SEND_BEFORE_SETTLE)
_CLOUD_POINTS = (
    CrashPoint.BEFORE_INIT_TRANSACTIONS,
    CrashPoint.AFTER_TAKE_BEFORE_READY,
    CrashPoint.BEFORE_PRODUCE,
    CrashPoint.IN_TRANSACTION,
    CrashPoint.AFTER_COMMIT_BEFORE_SETTLING,
)


class FaultKind(StrEnum):
    """Kind of a fault."""

    KILL = "kill"
    """SIGKILL; the part is started again after `away_s`. With `crash_at`, it first kills itself there once more."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT after `for_s`. A bridge wakes as a zombie: another bridge owns its shards by then."""
    ROLL = "roll"
    """The bridges are restarted in order, one after the other."""
    RESET = "reset"
    """The lines to a bridge are reset."""
    CLOSE = "close"
    """The lines to a bridge are closed in order, in mid-stream."""
    SWALLOW = "swallow"
    """The lines to a bridge are half-open: they take everything and pass nothing on."""
    STALL = "stall"
    """The lines to a bridge are half-open: they take nothing."""
    SLOW = "slow"
    """The lines to a bridge pass `bits_per_s` for `for_s`."""
    DATAGRAMS = "datagrams"
    """CoAP datagrams to and from a gateway are lost, duplicated and reordered, in these shares, for `for_s`."""
    RESTORE = "restore"
    """A gateway continues on another machine, from a backup that was made before the fault."""
    CARD = "card"
    """A gateway continues with an empty card: without its outbox and its journal."""
    DROP = "drop"
    """The MQTT devices of a gateway lose their connections."""


@dataclass(frozen=True, slots=True)
class ScheduledFault:
    """One entry of the schedule. `at_s`: since the devices began."""

    at_s: float
    kind: FaultKind
    target: str
    parameters: dict[str, float | str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The entry as one line."""
        more = "".join(f" {name}={value}" for name, value in self.parameters.items())
        return f"{self.at_s:7.1f} s  {self.kind:8} {self.target}{more}"


def schedule(seed: int, seconds: float) -> list[ScheduledFault]:
    """Return kills of all kinds of parts at a steady pace, with another fault between two of them."""
    chance = random.Random(seed)  # nothing else draws from it
    victims = _turns(chance, _TURN)
    others = _turns(chance, [kind for kind in FaultKind if kind is not FaultKind.KILL])
    faults = []
    for at_s in _times(seconds - LAST_S):
        faults.append(_kill(chance, _about(chance, at_s), next(victims)))
        faults.append(_other(chance, _about(chance, at_s + STEP_S / 2), next(others)))
    return [each for each in faults if each.at_s <= seconds - LAST_S]


def kills(faults: Iterable[ScheduledFault]) -> dict[str, int]:
    """Count the kills by kind of part."""
    counts = Counter(each.target.partition("-")[0] for each in faults if each.kind is FaultKind.KILL)
    return {victim: counts[victim] for victim in VICTIMS}


def _times(last_s: float) -> Iterator[float]:
    return takewhile(lambda at_s: at_s <= last_s, count(FIRST_S, STEP_S))


def _about(chance: random.Random, at_s: float) -> float:
    return round(at_s + chance.uniform(-JITTER_S, JITTER_S), 1)


def _turns(chance: random.Random, items: Sequence[T]) -> Iterator[T]:
    """Yield all items in random order, again and again, never the same twice running: a killed part needs time to come back."""
    last: T | None = None
    while True:
        order = chance.sample(items, len(items))
        if any(now == then for then, now in pairwise([last, *order])):
            continue
        yield from order
        last = order[-1]


def _kill(chance: random.Random, at_s: float, victim: str) -> ScheduledFault:
    target = chance.choice({"gateway": GATEWAYS, "bridge": BRIDGES}.get(victim, (victim,)))
    parameters: dict[str, float | str] = {"away_s": round(chance.uniform(0.2, 3.0), 1)}
    points = {"gateway": _EDGE_POINTS, "bridge": _CLOUD_POINTS}.get(victim)
    if points and chance.random() < CRASHING:
        parameters["crash_at"] = str(chance.choice(points))
    elif victim == "bridge" and chance.random() < LONG_AWAY:
        parameters["away_s"] = 10.0  # longer than the consumer group waits: the other bridge takes over
    return ScheduledFault(at_s, FaultKind.KILL, target, parameters)


def _other(chance: random.Random, at_s: float, kind: FaultKind) -> ScheduledFault:
    parameters: dict[str, float | str] = {}
    target = chance.choice(BRIDGES)
    match kind:
        case FaultKind.FREEZE:
            target = chance.choice((*GATEWAYS, *BRIDGES, *BRIDGES))
            longest_s = (2.0, 6.0) if target in GATEWAYS else (8.0, 15.0)
            parameters["for_s"] = round(chance.uniform(*longest_s), 1)
        case FaultKind.ROLL:
            target = "bridges"
        case FaultKind.SLOW:
            parameters |= {"bits_per_s": 1_000_000, "for_s": round(chance.uniform(10, 20), 1)}
        case FaultKind.DATAGRAMS:
            target = chance.choice(GATEWAYS)
            parameters |= {each: round(chance.uniform(0.05, 0.25), 2) for each in ("lose", "duplicate", "reorder")}
            parameters["for_s"] = round(chance.uniform(10, 20), 1)
        case FaultKind.RESTORE | FaultKind.CARD | FaultKind.DROP:
            target = chance.choice(GATEWAYS)
    return ScheduledFault(at_s, kind, target, parameters)
