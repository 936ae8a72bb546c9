"""Windows of time that a replay reads one after the other: a record and its row of `events` have the same `ingested`. Pure."""

from collections.abc import Iterable, Sequence
from datetime import date
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.sandbox.parser_runner import EARLIEST_NS, LATEST_NS

ROWS = 32 * 1024
"""Number of rows of `events` in a window, as far as the statistics of the files tell."""
EARLIEST_US, LATEST_US = EARLIEST_NS // 1000, LATEST_NS // 1000
_SAMPLE_ROWS = 1024
_MS_US = 1000


class SpanFile(msgspec.Struct, frozen=True):
    """A file of a table. `first_us`, `last_us`: the span of `ingested` of its rows."""

    path: str
    rows: int
    first_us: int
    last_us: int


class Window(msgspec.Struct, frozen=True):
    """A span of `ingested` without its end, in microseconds since 1970, and the files that may have rows in it."""

    begin_us: int
    end_us: int
    events: list[str]
    raw: list[str]


def span_files(found: pa.Table, days: tuple[date, date] | None) -> list[SpanFile]:
    """Return a table's files (delta-rs: `get_add_actions`), or those of some days. One without statistics may have any row."""
    if days is not None:
        day = found.column("partition.day")
        found = found.filter(pc.and_(pc.greater_equal(day, pa.scalar(days[0])), pc.less_equal(day, pa.scalar(days[1]))))
    names = ("path", "num_records", "min.ingested", "max.ingested")
    columns = [found.column(each) if each in found.column_names else pa.nulls(found.num_rows) for each in names]
    columns[2:] = [each.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()) for each in columns[2:]]
    # The Delta protocol lets writers cut the largest time to whole milliseconds.
    return [
        SpanFile(path, rows or 0, EARLIEST_US if first is None else first, LATEST_US if last is None else last + _MS_US)
        for path, rows, first, last in zip(*(each.to_pylist() for each in columns), strict=True)
    ]


def windows(events: Sequence[SpanFile], raw: Sequence[SpanFile]) -> list[Window]:
    """Return the windows that hold all rows of these files, in their order."""
    bounds = [EARLIEST_US, *_cuts(events or raw), LATEST_US + 1]
    every = [Window(begin, end, _within(events, begin, end), _within(raw, begin, end)) for begin, end in pairwise(bounds)]
    return [each for each in every if each.events or each.raw]


def _cuts(files: Iterable[SpanFile]) -> list[int]:
    """Return times that cut the rows of the files into equal parts, as if the rows of each file were evenly spread."""
    known = [each for each in files if each.first_us > EARLIEST_US and each.last_us < LATEST_US]
    samples = [np.linspace(each.first_us, each.last_us, -(-each.rows // _SAMPLE_ROWS), dtype=np.int64) for each in known]
    step = ROWS // _SAMPLE_ROWS
    cuts = np.sort(np.concatenate([np.empty(0, np.int64), *samples]))[step::step]
    return [int(each) for each in np.unique(cuts) if each > EARLIEST_US]


def _within(files: Iterable[SpanFile], begin_us: int, end_us: int) -> list[str]:
    return [each.path for each in files if each.first_us < end_us and each.last_us >= begin_us]
