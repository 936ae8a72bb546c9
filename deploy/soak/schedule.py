"""What happens when: the same seed and length, the same schedule. Pure."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count, pairwise, takewhile
from typing import TypeVar

from fogline.crash import CrashPoint

T = TypeVar("T")

STEP_S = 24.0
"""From one kill to the next."""
FIRST_S = 12.0
LAST_S = 20.0
"""Nothing begins later than so long before the end."""
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
"""How often each of them is, in any order. Spark takes longest to come back."""
_EDGE_POINTS = (CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT_BEFORE_ACK, CrashPoint.AFTER_SEND_BEFORE_SETTLE)
_CLOUD_POINTS = (
    CrashPoint.BEFORE_INIT_TRANSACTIONS,
    CrashPoint.AFTER_TAKE_BEFORE_READY,
    CrashPoint.BEFORE_PRODUCE,
    CrashPoint.IN_TRANSACTION,
    CrashPoint.AFTER_COMMIT_BEFORE_SETTLING,
)


class Kind(StrEnum):
    """What happens to a target."""

    KILL = "kill"
    """SIGKILL; started again after `away_s`. With `crash_at`, it first ends there by itself once more."""
    FREEZE = "freeze"
    """SIGSTOP, after `for_s` SIGCONT. A bridge wakes as a zombie: another one has its shards by then."""
    ROLL = "roll"
    """The bridges are ended in order and started again, one after the other."""
    RESET = "reset"
    """The lines to a bridge are reset."""
    CLOSE = "close"
    """They are closed in order, in mid-stream."""
    SWALLOW = "swallow"
    """They are half-open: everything is taken and nothing passed on."""
    STALL = "stall"
    """They are half-open: nothing is taken."""
    SLOW = "slow"
    """They pass `bits_per_s` for `for_s`."""
    RADIO = "radio"
    """CoAP's datagrams to and from a gateway: the shares `lose`, `repeat`, `reorder` for `for_s`."""
    DROP = "drop"
    """The MQTT devices of a gateway lose their connections."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry. `at_s`: since the devices began."""

    at_s: float
    kind: Kind
    target: str
    parameters: dict[str, float | str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """In one line."""
        more = "".join(f" {name}={value}" for name, value in self.parameters.items())
        return f"{self.at_s:7.1f} s  {self.kind:8} {self.target}{more}"


def schedule(seed: int, seconds: float) -> list[Fault]:
    """Kills of all kinds of parts at a steady pace, and between two of them something else."""
    chance = random.Random(seed)  # nothing else draws from it
    victims = _turns(chance, _TURN)
    others = _turns(chance, [kind for kind in Kind if kind is not Kind.KILL])
    faults = []
    for at_s in _times(seconds - LAST_S):
        faults.append(_kill(chance, _about(chance, at_s), next(victims)))
        faults.append(_other(chance, _about(chance, at_s + STEP_S / 2), next(others)))
    return [each for each in faults if each.at_s <= seconds - LAST_S]


def kills(faults: Iterable[Fault]) -> dict[str, int]:
    """How often parts of each kind are killed."""
    counts = Counter(each.target.partition("-")[0] for each in faults if each.kind is Kind.KILL)
    return {victim: counts[victim] for victim in VICTIMS}


def _times(last_s: float) -> Iterator[float]:
    return takewhile(lambda at_s: at_s <= last_s, count(FIRST_S, STEP_S))


def _about(chance: random.Random, at_s: float) -> float:
    return round(at_s + chance.uniform(-JITTER_S, JITTER_S), 1)


def _turns(chance: random.Random, items: Sequence[T]) -> Iterator[T]:
    """All of them in any order, again and again, and none twice running: what was killed last needs time to come back."""
    last: T | None = None
    while True:
        order = chance.sample(items, len(items))
        if any(now == then for then, now in pairwise([last, *order])):
            continue
        yield from order
        last = order[-1]


def _kill(chance: random.Random, at_s: float, victim: str) -> Fault:
    target = chance.choice({"gateway": GATEWAYS, "bridge": BRIDGES}.get(victim, (victim,)))
    parameters: dict[str, float | str] = {"away_s": round(chance.uniform(0.2, 3.0), 1)}
    points = {"gateway": _EDGE_POINTS, "bridge": _CLOUD_POINTS}.get(victim)
    if points and chance.random() < CRASHING:
        parameters["crash_at"] = str(chance.choice(points))
    elif victim == "bridge" and chance.random() < LONG_AWAY:
        parameters["away_s"] = 10.0  # longer than the group waits for it: the other one takes over
    return Fault(at_s, Kind.KILL, target, parameters)


def _other(chance: random.Random, at_s: float, kind: Kind) -> Fault:
    parameters: dict[str, float | str] = {}
    target = chance.choice(BRIDGES)
    match kind:
        case Kind.FREEZE:
            target = chance.choice((*GATEWAYS, *BRIDGES, *BRIDGES))
            longest_s = (2.0, 6.0) if target in GATEWAYS else (8.0, 15.0)
            parameters["for_s"] = round(chance.uniform(*longest_s), 1)
        case Kind.ROLL:
            target = "bridges"
        case Kind.SLOW:
            parameters |= {"bits_per_s": 1_000_000, "for_s": round(chance.uniform(10, 20), 1)}
        case Kind.RADIO:
            target = chance.choice(GATEWAYS)
            parameters |= {each: round(chance.uniform(0.05, 0.25), 2) for each in ("lose", "repeat", "reorder")}
            parameters["for_s"] = round(chance.uniform(10, 20), 1)
        case Kind.DROP:
            target = chance.choice(GATEWAYS)
    return Fault(at_s, kind, target, parameters)
