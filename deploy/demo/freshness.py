"""Freshness of the table: from a device's acknowledgement to the row, and from Spark's start to the next commit. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.judgement import Id

MEDIAN_S = 2.0
"""Goal of the median."""
P99_S = 5.0
"""Goal of the 99th percentile."""
MOVED_S = 15.0
"""Goal of the time from Spark's session to the next commit, after a kill of Spark."""


@dataclass(slots=True)
class Outage:
    """A part from its kill to the first event that passed it again. Seconds of the monotonic clock.

    `session_s`: begin of Spark's session, if the part is Spark.
    """

    part: str
    killed_s: float
    session_s: float | None = None
    over_s: float | None = None


@dataclass(frozen=True, slots=True)
class Freshness:
    """Seconds from an acknowledgement to the row, of `count` events that no kill delayed. `moved_s`: of each kill of Spark."""

    count: int
    median_s: float | None
    p99_s: float | None
    longest_s: float | None
    moved_s: list[float]

    def as_json(self) -> dict[str, Any]:
        """For `--json`, with the goals."""
        return {
            "events": self.count,
            "median_s": self.median_s,
            "p99_s": self.p99_s,
            "longest_s": self.longest_s,
            "moved_s": self.moved_s,
            "goals": {"median_s": MEDIAN_S, "p99_s": P99_S, "moved_s": MOVED_S},
        }

    @property
    def sentences(self) -> list[str]:
        """One line about the rows, and one about the kills of Spark, if there are any."""
        found = []
        if self.median_s is not None and self.p99_s is not None:
            found.append(
                f"from a device's acknowledgement to the row, {self.count:,} events while nothing was killed: median "
                f"{self.median_s:.1f} s ({_goal(self.median_s, MEDIAN_S)}), p99 {self.p99_s:.1f} s ({_goal(self.p99_s, P99_S)})"
            )
        if self.moved_s:
            each, goal = ", ".join(f"{one:.1f}" for one in self.moved_s), _goal(max(self.moved_s), MOVED_S)
            found.append(f"from Spark's session to the table's next commit, after each kill: {each} s ({goal})")
        return found


def freshness(
    acknowledged: Mapping[Id, float], visible: Mapping[Id, float], commits: Iterable[float], outages: Iterable[Outage]
) -> Freshness:
    """Compare the times of acknowledgements with those at which rows became visible. All times: monotonic clock.

    An event counts unless a part was down between the two times, or it waited behind events that were acknowledged meanwhile.
    """
    pairs = [(at, visible[each]) for each, at in acknowledged.items() if each in visible]
    outages = list(outages)
    delayed = [_delay(each, pairs) for each in outages]
    took = sorted(seen - at for at, seen in pairs if not any(at <= end and seen >= begin for begin, end in delayed))
    times = sorted(commits)
    moved = [_next(times, each.session_s) for each in outages if each.session_s is not None]
    return Freshness(
        len(took),
        _share(took, 0.5),
        _share(took, 0.99),
        _share(took, 1.0),
        [round(each, 2) for each in moved if each is not None],
    )


def _delay(outage: Outage, pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the time from the kill until the table has all that was acknowledged before the part worked again."""
    if outage.over_s is None:
        return outage.killed_s, float("inf")
    return outage.killed_s, max((seen for at, seen in pairs if at <= outage.over_s), default=outage.over_s)


def _next(times: Sequence[float], since_s: float) -> float | None:
    index = bisect_right(times, since_s)
    return times[index] - since_s if index < len(times) else None


def _share(ordered: Sequence[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 2) if ordered else None


def _goal(value: float, goal: float) -> str:
    return f"goal {goal:.0f} s: {'met' if value <= goal else 'missed'}"
