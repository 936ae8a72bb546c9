"""What a parser reads differently now: values by metric that came, went or changed. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import msgspec

Change = Literal["came", "went", "changed"]
MISSING = object()


class Difference(msgspec.Struct, frozen=True):
    """A count of values, summed over events: `change` is one of `Change`."""

    parser: str
    type: str
    metric: str
    change: str
    values: int


class ReadingCells(NamedTuple):
    """A reading, as it is compared. `time`: microseconds since 1970."""

    metric: str
    value: float | None
    text: str | None
    unit: str | None
    time: int | None


def differences(former: Sequence[ReadingCells], now: Sequence[ReadingCells]) -> Iterator[tuple[str, Change]]:
    """Yield the metric and the change of each value that differs. Values of one metric are compared in their order."""
    if not former:  # most replayed events had no readings
        yield from ((each.metric, "came") for each in now)
        return
    before, after = _by_metric(former), _by_metric(now)
    for metric in before.keys() | after.keys():
        for old, new in zip_longest(before[metric], after[metric], fillvalue=MISSING):
            if old is MISSING:
                yield metric, "came"
            elif new is MISSING:
                yield metric, "went"
            elif old != new:
                yield metric, "changed"


def _by_metric(values: Iterable[ReadingCells]) -> dict[str, list[ReadingCells]]:
    found: dict[str, list[ReadingCells]] = defaultdict(list)
    for each in values:
        found[each.metric].append(each)
    return found
