"""Compares the readings of `events` with the rows of `readings`, first by fingerprints of ranges of sequences. Pure.

A range whose fingerprints are equal has every reading once. Only the rows of the other ranges are compared one by one, so
memory grows with the number of ranges, not of rows.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.ledger.arrow_rows import equals, fingerprints, runs, streams_of
from fogline_cloud.ledger.marks import ReadingMarks
from fogline_cloud.ledger.ranges import SpanCollector
from fogline_cloud.shard.admission import StreamKey

RANGE_BITS = 12
"""Number of bits of a sequence within its range."""
_COMPARED_AT_ONCE = 512  # ranges whose rows are in memory at the same time
_MODULUS = 1 << 64

SequenceRange = tuple[StreamKey, int]
"""A stream, and the number of a range of 4096 sequences."""


class ReadingSums:
    """The sum of fingerprints in `events` minus the sum in `readings`, of each range of sequences."""

    def __init__(self) -> None:
        self._sums: dict[SequenceRange, int] = defaultdict(int)
        self.streams: set[StreamKey] = set()
        """The streams in `readings`."""

    def expect(self, events: pa.Table) -> None:
        """Add the readings of rows of `events`."""
        rows = _parsed(events)
        numbers, keys = streams_of(rows)
        sequences, values = (rows.column(name).combine_chunks() for name in ("sequence", "values"))
        ordinal = 0
        while len(sequences := sequences.filter(more := pc.greater(values, ordinal))):
            numbers, values = numbers.filter(more), values.filter(more)
            self._add(numbers, keys, sequences, pa.repeat(pa.scalar(ordinal, pa.int64()), len(sequences)), 1)
            ordinal += 1

    def find(self, readings: pa.Table) -> None:
        """Add rows of `readings`."""
        numbers, keys = streams_of(readings)
        sequences, ordinals = (readings.column(name).combine_chunks() for name in ("sequence", "ordinal"))
        self.streams.update(keys)
        self._add(numbers, keys, sequences, ordinals.fill_null(-1), -1)

    def _add(self, numbers: pa.Array, keys: list[StreamKey], sequences: pa.Array, ordinals: pa.Array, sign: int) -> None:
        parts = [numbers, pc.shift_right(sequences, RANGE_BITS), fingerprints(sequences, ordinals)]
        sums = pa.table(parts, names=["stream", "range", "of"]).group_by(["stream", "range"]).aggregate([("of", "sum")])
        for number, part, total in zip(*(sums.column(each).to_pylist() for each in ("stream", "range", "of_sum")), strict=True):
            self._sums[keys[number], part] += sign * total

    def take_marks(self, marks: ReadingMarks) -> None:
        """Add the rows that these marks stand for."""
        self.streams.update(marks.streams)
        for gateway, stream, part, total in marks.sums:
            self._sums[(gateway, stream), part] += total

    def marks(self) -> ReadingMarks:
        """Return marks that stand for the rows so far."""
        sums = [(*key, part, self._sums[key, part] % _MODULUS) for key, part in self.unequal()]
        return ReadingMarks(sums, sorted(self.streams))

    def unequal(self) -> list[SequenceRange]:
        """Return the ranges whose rows have to be compared one by one."""
        return sorted(each for each, total in self._sums.items() if total % _MODULUS)


@dataclass(slots=True)
class ReadingDifferences:
    """Sequences whose readings differ, by stream."""

    missing: dict[StreamKey, SpanCollector] = field(default_factory=lambda: defaultdict(SpanCollector))
    double: dict[StreamKey, SpanCollector] = field(default_factory=lambda: defaultdict(SpanCollector))
    phantom: dict[StreamKey, SpanCollector] = field(default_factory=lambda: defaultdict(SpanCollector))


def differences(
    unequal: Sequence[SequenceRange], events: Callable[[], Iterable[pa.Table]], readings: Callable[[], Iterable[pa.Table]]
) -> ReadingDifferences:
    """Compare the rows of these ranges. `events` and `readings` read the tables; they are called once for some ranges each."""
    found = ReadingDifferences()
    for begin in range(0, len(unequal), _COMPARED_AT_ONCE):
        _Comparison(unequal[begin : begin + _COMPARED_AT_ONCE]).run(events(), readings(), found)
    return found


class _Comparison:
    """Compares the rows of some ranges."""

    def __init__(self, ranges: Sequence[SequenceRange]) -> None:
        self._keys = sorted({key for key, _ in ranges})
        self._numbers = {key: number for number, key in enumerate(self._keys)}
        wanted = [[self._numbers[key] for key, _ in ranges], [part for _, part in ranges]]
        self._ranges = pa.table([pa.array(each, pa.int64()) for each in wanted], names=["stream", "range"])

    def run(self, events: Iterable[pa.Table], readings: Iterable[pa.Table], found: ReadingDifferences) -> None:
        of_event = ["stream", "sequence"]
        wanted = _joined("values", (self._select(rows, "values", _value_counts(rows)) for rows in events))
        there = _joined("ordinal", (self._select(rows, "ordinal", rows.column("ordinal")) for rows in readings))
        both = (
            wanted.group_by(of_event)
            .aggregate([("values", "max")])
            .join(
                there.group_by(of_event).aggregate([("ordinal", "count"), ("ordinal", "count_distinct")]),
                of_event,
                join_type="full outer",
            )
        )
        most = both.column("values_max")
        count, different = (both.column(f"ordinal_{each}").fill_null(0) for each in ("count", "count_distinct"))
        self._collect(both.filter(pc.is_null(most)), found.phantom)
        self._collect(both.filter(pc.less(different, most)), found.missing)
        self._collect(both.filter(pc.greater(count, pc.min_element_wise(different, most, skip_nulls=False))), found.double)

    def _select(self, rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
        """Return stream number, sequence and a value of the rows in these ranges."""
        numbers, keys = streams_of(rows)
        known = pa.array([self._numbers.get(key) for key in keys], pa.int64()).take(numbers)
        sequences = rows.column("sequence")
        columns = [known, sequences, pc.shift_right(sequences, RANGE_BITS), values]
        found = pa.table(columns, names=["stream", "sequence", "range", name])
        return found.join(self._ranges, ["stream", "range"], join_type="left semi").select(["stream", "sequence", name])

    def _collect(self, rows: pa.Table, into: dict[StreamKey, SpanCollector]) -> None:
        streams, sequences = (rows.column(name).combine_chunks() for name in ("stream", "sequence"))
        for run in runs(streams, sequences, sequences):
            into[self._keys[run.stream]].add(run.first, run.last)


def _parsed(events: pa.Table) -> pa.Table:
    return events.filter(equals(events.column("outcome"), EventOutcome.OK.value))


def _value_counts(events: pa.Table) -> pa.ChunkedArray:
    """Return the number of readings that each row must have."""
    is_parsed = equals(events.column("outcome"), EventOutcome.OK.value).fill_null(False)
    return pc.if_else(is_parsed, events.column("values"), 0)


def _joined(name: str, tables: Iterable[pa.Table]) -> pa.Table:
    empty = pa.schema([(each, pa.int64()) for each in ("stream", "sequence", name)]).empty_table()
    return pa.concat_tables([empty, *tables])
