"""How long parsers take for an event, from the rows of table `events`. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.tables.schema import EventOutcome

COLUMNS: Final = ("parser", "parse_us", "outcome")
_PARTS: Final = 8  # steps in each power of two
_STEPS: Final = 40 * _PARTS  # up to 2^40 microseconds: 12 days


class ParserTime(msgspec.Struct, frozen=True):
    """What the events of one parser took, in microseconds of CPU time. `p99_us` is at most an eighth too large.

    `slow`: events that it did not finish in time. `share`: its part of the time of all parsers.
    """

    parser: str
    events: int
    mean_us: float
    p99_us: float
    most_us: int
    slow: int
    share: float


def parser_times(batches: Iterable[pa.RecordBatch]) -> list[ParserTime]:
    """Return the parsers of rows with `COLUMNS`, those that took most of the time first."""
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(_STEPS + 1, np.int64))
    sums, most, slow = defaultdict[str, int](int), defaultdict[str, int](int), defaultdict[str, int](int)
    for batch in batches:
        ran = batch.filter(pc.and_(batch.column("parser").is_valid(), batch.column("parse_us").is_valid()))
        for name in pc.unique(ran.column("parser")).to_pylist():
            own = ran.filter(pc.equal(ran.column("parser"), name))
            times = own.column("parse_us").to_numpy(zero_copy_only=False).astype(np.int64)
            steps = np.ceil(np.log2(np.maximum(times, 1)) * _PARTS).astype(np.int64)
            counts[name] += np.bincount(np.minimum(steps, _STEPS), minlength=_STEPS + 1)
            sums[name] += int(times.sum())
            most[name] = max(most[name], int(times.max()))
            slow[name] += int(pc.sum(pc.equal(own.column("outcome"), EventOutcome.SLOW.value)).as_py() or 0)
    total = sum(sums.values()) or 1
    found = [
        ParserTime(
            name,
            (events := int(steps.sum())),
            sums[name] / events,
            min(most[name], 2 ** (int(np.searchsorted(np.cumsum(steps), 0.99 * events)) / _PARTS)),
            most[name],
            slow[name],
            sums[name] / total,
        )
        for name, steps in counts.items()
    ]
    return sorted(found, key=lambda each: -each.share)
