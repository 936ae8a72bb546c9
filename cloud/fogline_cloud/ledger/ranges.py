"""Sequences as ranges. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

Span = tuple[int, int]
"""First and last, both included."""


@dataclass(slots=True)
class Numbers:
    """Which numbers were seen, and which of them more than once."""

    spans: list[Span] = field(default_factory=list)
    doubles: list[Span] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many different numbers were seen."""
        return sum(last - first + 1 for first, last in self.spans)

    @property
    def last(self) -> int:
        """The highest number, 0 for none."""
        return self.spans[-1][1] if self.spans else 0


def collect(seen: Iterable[Span]) -> Numbers:
    """Bring spans, in any order and overlapping or not, into order."""
    numbers = Numbers()
    spans, doubles = numbers.spans, numbers.doubles
    for first, last in sorted(seen):
        if not spans or first > spans[-1][1] + 1:
            spans.append((first, last))
            continue
        begin, end = spans[-1]
        if first <= end:
            _append(doubles, (first, min(last, end)))
        spans[-1] = (begin, max(last, end))
    return numbers


def without(spans: list[Span], others: list[Span]) -> list[Span]:
    """What is in `spans` and not in `others`; both in order and without overlaps."""
    left: list[Span] = []
    for first, last in spans:
        begin = first
        for other_first, other_last in others:
            if other_last < begin or other_first > last:
                continue
            if other_first > begin:
                left.append((begin, other_first - 1))
            begin = other_last + 1
        if begin <= last:
            left.append((begin, last))
    return left


def _append(spans: list[Span], span: Span) -> None:
    if spans and span[0] <= spans[-1][1] + 1:
        spans[-1] = (spans[-1][0], max(spans[-1][1], span[1]))
    else:
        spans.append(span)


def shown(spans: list[Span], most: int = 5) -> str:
    """`3, 7..9 and 2 more`."""
    parts = [str(first) if first == last else f"{first}..{last}" for first, last in spans[:most]]
    more = f" and {len(spans) - most} more" if len(spans) > most else ""
    return ", ".join(parts) + more
