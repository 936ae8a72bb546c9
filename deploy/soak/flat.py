"""Whether what a process holds stays the same over its life. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

RSS_MB = 10.0
"""So far resident memory may go from where it was after the warm-up."""
COUNTS = {"descriptors": 5, "threads": 3, "tasks": 5}
"""So far these may, in the middle of the last samples from the middle of the first."""
WARM = 0.2
"""The share of the time that counts as warm-up, at least."""
WARM_S = 300.0
"""So long counts as warm-up, in a run of twice that, and half of a shorter one: a gateway remembers each CoAP message for
247 s (RFC 7252, EXCHANGE_LIFETIME), and what that takes it has only then."""
MIDDLE = 7
"""So many samples make a middle."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment. `life`: how often it had been started. `tasks`, `unsettled`: `None`: it did not say."""

    at_s: float
    part: str
    life: int
    rss_mb: float
    descriptors: int
    threads: int
    tasks: int | None = None
    unsettled: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """The whole line at one moment: totals of events, and what waits in the outboxes and for the table."""

    at_s: float
    acknowledged: int
    committed: int
    rows: int
    backlog: int
    lag: int


@dataclass(frozen=True, slots=True)
class Held:
    """What a part held: RSS after the warm-up, lowest, highest and at last, and the counts after warm-up and at last."""

    part: str
    lives: int
    samples: int
    rss_mb: tuple[float, float, float, float]
    counts: dict[str, tuple[float, float]]


def warm(samples: Sequence[Sample], part: str) -> list[Sample]:
    """Those of a part after the warm-up."""
    own = [each for each in samples if each.part == part]
    if not own:
        return []
    first_s, span_s = own[0].at_s, own[-1].at_s - own[0].at_s
    warm_s = max(WARM * span_s, min(WARM_S, span_s / 2))
    return [each for each in own if each.at_s >= first_s + warm_s]


def held(samples: Sequence[Sample], part: str) -> Held | None:
    """In short; `None` if there is no sample of it."""
    found = warm(samples, part)
    if not found:
        return None
    rss = [each.rss_mb for each in found]
    counts = {name: _middles(found, name) for name in COUNTS}
    return Held(
        part,
        lives=found[-1].life,
        samples=len(found),
        rss_mb=(round(median(rss[:MIDDLE]), 1), min(rss), max(rss), rss[-1]),
        counts={name: middles for name, middles in counts.items() if middles is not None},
    )


def over_time(samples: Sequence[Sample], part: str, rows: int) -> list[Sample]:
    """About so many of a part's samples, from its first to its last."""
    own = [each for each in samples if each.part == part]
    step = max(1, len(own) // rows)
    return own[::-1][::step][::-1]


def not_flat(samples: Sequence[Sample], parts: Iterable[str]) -> list[str]:
    """In words, what did not stay the same, or cannot be told. Every sample after the warm-up counts for the memory."""
    problems = []
    for part in parts:
        found = held(samples, part)
        if found is None or found.samples < 2 * MIDDLE or found.counts.keys() != COUNTS.keys():
            problems.append(f"{part}: there are too few samples to tell whether it stays flat")
            continue
        if found.lives > 1:
            problems.append(f"{part} was started {found.lives} times: it should live once")
        base, lowest, highest, _ = found.rss_mb
        if highest - base > RSS_MB or base - lowest > RSS_MB:
            problems.append(
                f"{part}: its memory went from {base} MB to {lowest} .. {highest} MB; {RSS_MB:.0f} MB up or down are allowed"
            )
        for name, (first, last) in found.counts.items():
            if abs(last - first) > COUNTS[name]:
                problems.append(f"{part}: {first:.0f} {name} became {last:.0f}; {COUNTS[name]} more or less are allowed")
    return problems


def not_at_rest(before: Mapping[str, Sample], after: Mapping[str, Sample]) -> list[str]:
    """In words, what a part holds more or less of than before, by its name; both when nothing was under way."""
    problems = []
    for part in before.keys() | after.keys():
        for name, allowed in COUNTS.items():
            first, last = (getattr(each.get(part), name, None) for each in (before, after))
            if first is None or last is None:
                problems.append(f"{part} did not say how many {name} it has at rest")
            elif abs(last - first) > allowed:
                problems.append(f"{part}: at rest {first} {name} became {last}; {allowed} more or less are allowed")
    return sorted(problems)


def _middles(samples: Sequence[Sample], name: str) -> tuple[float, float] | None:
    values = [value for each in samples if (value := getattr(each, name)) is not None]
    return (median(values[:MIDDLE]), median(values[-MIDDLE:])) if values else None
