"""What a parser reads differently now: values by metric that came, went or changed. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import msgspec

Change = Literal["came", "went", "changed"]
MISSING = object()
Values = list[Mapping[str, Any]]
"""Elements of column `readings`."""


class Difference(msgspec.Struct, frozen=True):
    """A count of values, summed over events: `change` is one of `Change`."""

    parser: str
    type: str
    metric: str
    change: str
    values: int


class _Value(NamedTuple):
    value: float | None
    text: str | None
    unit: str | None
    time: Any


def differences(former: Values, now: Values) -> Iterator[tuple[str, Change]]:
    """Yield the metric and the change of each value that differs. Values of one metric are compared in their order."""
    before, after = _by_metric(former), _by_metric(now)
    for metric in before.keys() | after.keys():
        for old, new in zip_longest(before[metric], after[metric], fillvalue=MISSING):
            if old is MISSING:
                yield metric, "came"
            elif new is MISSING:
                yield metric, "went"
            elif old != new:
                yield metric, "changed"


def _by_metric(values: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for each in values:
        found[each["metric"]].append(_Value(each["value"], each["text"], each["unit"], each["time"]))
    return found
