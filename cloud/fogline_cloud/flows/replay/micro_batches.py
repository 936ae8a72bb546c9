"""Finished micro-batches: the unit in which rows are replaced. All rows of one, in both tables, follow from `events`."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import date

import msgspec

_MAX_LISTED = 1000


class MicroBatches(msgspec.Struct, frozen=True):
    """Micro-batches of one flow. `numbers`: by run. `days`: the days of the rows that are replaced."""

    flow: str
    numbers: dict[str, list[int]]
    days: list[date]

    @property
    def predicate(self) -> str:
        """SQL that selects the rows, in either table. It selects every micro-batch between two of them if there are many."""
        days = ", ".join(f"DATE '{each}'" for each in self.days)
        runs = " OR ".join(f"(run = '{run}' AND {_within(numbers)})" for run, numbers in self.numbers.items())
        return f"day IN ({days}) AND flow = '{self.flow}' AND ({runs})"


def micro_batches(flow: str, rows: Iterable[tuple[date, str, int]]) -> MicroBatches:
    """Return the micro-batches of rows. `rows`: day, run and number of each."""
    numbers: dict[str, set[int]] = defaultdict(set)
    days: set[date] = set()
    for day, run, number in rows:
        numbers[run].add(number)
        days.add(day)
    return MicroBatches(flow, {run: sorted(each) for run, each in sorted(numbers.items())}, sorted(days))


def _within(numbers: list[int]) -> str:
    if len(numbers) > _MAX_LISTED:
        return f"batch BETWEEN {numbers[0]} AND {numbers[-1]}"
    return f"batch IN ({', '.join(map(str, numbers))})"
