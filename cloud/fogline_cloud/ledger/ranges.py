"""Sets of sequences as ranges. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

Span = tuple[int, int]
"""First and last, both included."""


@dataclass(slots=True)
class SequenceSet:
    """The sequences that were seen, and those that were seen more than once."""

    spans: list[Span] = field(default_factory=list)
    duplicates: list[Span] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of different sequences."""
        return size(self.spans)

    @property
    def last(self) -> int:
        """The highest sequence, 0 for none."""
        return self.spans[-1][1] if self.spans else 0


_MOST_WAITING = 256  # spans that a collector keeps before it merges them


class SpanCollector:
    """Merges spans as they come, in any order, like `collect`. Its memory grows with the number of holes, not of spans."""

    __slots__ = ("_found", "_waiting")

    def __init__(self) -> None:
        self._found = SequenceSet()
        self._waiting: list[Span] = []

    def add(self, first: int, last: int) -> None:
        """Add one span."""
        waiting = self._waiting
        if waiting and waiting[-1][1] + 1 == first:
            waiting[-1] = (waiting[-1][0], last)
            return
        waiting.append((first, last))
        if len(waiting) > max(_MOST_WAITING, len(self._found.spans)):
            self._merge()

    def include(self, found: SequenceSet) -> None:
        """Add what another collector has found."""
        for first, last in found.spans:
            self.add(first, last)
        if found.duplicates:
            self._merge()
            self._found.duplicates = collect(chain(self._found.duplicates, found.duplicates)).spans

    def result(self) -> SequenceSet:
        """Return the sequences that were added, and those that were added more than once."""
        if self._waiting:
            self._merge()
        return self._found

    def _merge(self) -> None:
        merged = collect(chain(self._found.spans, self._waiting))
        self._found = SequenceSet(merged.spans, collect(chain(self._found.duplicates, merged.duplicates)).spans)
        self._waiting = []


def size(spans: Iterable[Span]) -> int:
    """Return the number of sequences in spans without overlaps."""
    return sum(last - first + 1 for first, last in spans)


def collect(seen: Iterable[Span]) -> SequenceSet:
    """Sort and merge spans, which may overlap."""
    found = SequenceSet()
    for first, last in sorted(seen):
        if found.spans and first <= found.last:
            _append(found.duplicates, (first, min(last, found.last)))
        _append(found.spans, (first, last))
    return found


def without(spans: list[Span], others: list[Span]) -> list[Span]:
    """Return `spans` without `others`. Both must be sorted, and `spans` without overlaps."""
    left: list[Span] = []
    at = 0
    for first, last in spans:
        begin = first
        while at < len(others) and others[at][0] <= last:
            other_first, other_last = others[at]
            if other_first > begin:
                left.append((begin, other_first - 1))
            begin = max(begin, other_last + 1)
            if other_last >= last:
                break  # it may reach into the next span
            at += 1
        if begin <= last:
            left.append((begin, last))
    return left


def _append(spans: list[Span], span: Span) -> None:
    if spans and span[0] <= spans[-1][1] + 1:
        spans[-1] = (spans[-1][0], max(spans[-1][1], span[1]))
    else:
        spans.append(span)


def shown(spans: list[Span], most: int = 5) -> str:
    """Return the spans as text, for example `3, 7..9 and 2 more`."""
    parts = [str(first) if first == last else f"{first}..{last}" for first, last in spans[:most]]
    more = f" and {len(spans) - most} more" if len(spans) > most else ""
    return ", ".join(parts) + more
