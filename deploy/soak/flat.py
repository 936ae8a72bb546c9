"""Rules for memory and counts of a process that must not grow. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

RSS_MB = 10.0
"""Largest change of resident memory after the warm-up."""
GROWN_MB = 40.0
"""The most by which a part that is killed and started again may take more memory from life to life."""
COMMAND_MB = 0.004
"""Memory of a command that a bridge remembers after its end: 2 kB on the loop, and as much in its shard."""
COUNTS = {"descriptors": 5, "threads": 3, "tasks": 5}
"""Largest change of these counts, from the median of the first samples to the median of the last."""
WARM = 0.2
"""Least share of the run that counts as warm-up."""
WARM_S = 300.0
"""Warm-up of a run of at least twice this; of a shorter run, half of it. A gateway remembers each CoAP message for 247 s
(RFC 7252, EXCHANGE_LIFETIME), so its memory grows for that long."""
MIDDLE = 7
"""Number of samples of a median."""


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process at one moment. `life`: number of its starts. `tasks`, `unsettled`: `None` if it did not report them."""

    at_s: float
    part: str
    life: int
    rss_mb: float
    descriptors: int
    threads: int
    tasks: int | None = None
    unsettled: int | None = None


@dataclass(frozen=True, slots=True)
class LineTotals:
    """All stages at one moment: totals of events, and the backlogs of outboxes and table."""

    at_s: float
    acknowledged: int
    committed: int
    rows: int
    backlog: int
    lag: int


@dataclass(frozen=True, slots=True)
class Held:
    """Memory and counts of a part: RSS after the warm-up, lowest, highest and last; counts after the warm-up and last."""

    part: str
    lives: int
    samples: int
    rss_mb: tuple[float, float, float, float]
    counts: dict[str, tuple[float, float]]


def warm(samples: Sequence[ProcessSample], part: str) -> list[ProcessSample]:
    """Return the samples of a part after its warm-up."""
    own = [each for each in samples if each.part == part]
    if not own:
        return []
    first_s, span_s = own[0].at_s, own[-1].at_s - own[0].at_s
    warm_s = max(WARM * span_s, min(WARM_S, span_s / 2))
    return [each for each in own if each.at_s >= first_s + warm_s]


def held(samples: Sequence[ProcessSample], part: str) -> Held | None:
    """Return the summary of a part; `None` if it has no samples."""
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


def over_time(samples: Sequence[ProcessSample], part: str, rows: int) -> list[ProcessSample]:
    """Return about `rows` of a part's samples, from first to last."""
    own = [each for each in samples if each.part == part]
    step = max(1, len(own) // rows)
    return own[::-1][::step][::-1]


def not_flat(samples: Sequence[ProcessSample], parts: Iterable[str]) -> list[str]:
    """Return a text for each part that grew or shrank, or has too few samples. Memory is checked in every sample."""
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


def grown(samples: Sequence[ProcessSample], parts: Iterable[str], commands: int = 0) -> list[str]:
    """Return a text for each part whose memory grew over its lives, from the median after the warm-up to that of the end.

    `commands`: number of commands that each part remembers.
    """
    problems, allowed_mb = [], GROWN_MB + COMMAND_MB * commands
    for part in parts:
        rss = [each.rss_mb for each in warm(samples, part)]
        if rss and median(rss[-MIDDLE:]) - median(rss[:MIDDLE]) > allowed_mb:
            problems.append(
                f"{part}: its memory grew from {median(rss[:MIDDLE]):.0f} to {median(rss[-MIDDLE:]):.0f} MB over its lives"
            )
    return problems


def not_at_rest(before: Mapping[str, ProcessSample], after: Mapping[str, ProcessSample]) -> list[str]:
    """Return a text for each count of a part that changed between two samples at rest."""
    problems = []
    for part in before.keys() | after.keys():
        for name, allowed in COUNTS.items():
            first, last = (getattr(each.get(part), name, None) for each in (before, after))
            if first is None or last is None:
                problems.append(f"{part} did not say how many {name} it has at rest")
            elif abs(last - first) > allowed:
                problems.append(f"{part}: at rest {first} {name} became {last}; {allowed} more or less are allowed")
    return sorted(problems)


def _middles(samples: Sequence[ProcessSample], name: str) -> tuple[float, float] | None:
    values = [value for each in samples if (value := getattr(each, name)) is not None]
    return (median(values[:MIDDLE]), median(values[-MIDDLE:])) if values else None
