"""Recognises events that several gateways received from one device. Pure: Arrow in, Arrow out, no Spark.

The id of such an event holds the device's counter without its wraps, so the same id returns for a later event. Two rows are one
event only if different gateways sent them (one gateway has compared its own) within a window of time. A row without a
trustworthy time is never a copy: if in doubt, the flow keeps it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fogline.events.event import TimeQuality
from fogline_cloud.flows.tables.schema import EventOutcome
from fogline_cloud.settings import SharedSettings, Strategy

MAX_IN_WINDOW = 64
"""Largest number of events of one identity in a window. No counter wraps as often: with more, the ids tell nothing."""
_MAX_KNOWN = 100_000


class KafkaPosition(NamedTuple):
    """Position of a record in Kafka."""

    topic: str
    partition: int
    offset: int


class Sighting(NamedTuple):
    """One row that is compared."""

    source: str
    id: str
    gateway: str
    recorded_us: int  # time at which its gateway stored it
    position: KafkaPosition
    rule: SharedSettings
    replayed: bool
    settled: bool  # the row is in the table already
    again: bool  # a settled row is a copy of another gateway's
    sure: bool  # the gateway's clock was right, or was corrected afterwards


class DedupVerdict(Enum):
    """Result of the comparison for one row."""

    FIRST = auto()  # no copy
    AGAIN = auto()  # a copy of another gateway's row
    REPLAYED = auto()  # a row that the same gateway has sent before


@dataclass(slots=True)
class _Event:
    """One event: the time of its first row, and the gateways that have sent it."""

    recorded_us: int
    gateways: set[str]


_BY_TIME = attrgetter("recorded_us")


def compare(sightings: Iterable[Sighting]) -> Iterator[tuple[Sighting, DedupVerdict]]:
    """Compare rows, and yield the verdict on every row that is not settled. `sightings`: grouped by identity (source, id)."""
    for _, same in groupby(sightings, key=lambda each: (each.source, each.id)):
        yield from _verdicts_of_identity(list(same))


def _verdicts_of_identity(same: list[Sighting]) -> Iterator[tuple[Sighting, DedupVerdict]]:
    """Yield the verdicts of one identity: settled first rows come first, then their copies, then the others by time."""
    same.sort(key=lambda each: (not each.settled, each.again, each.recorded_us, each.gateway, each.position))
    events: list[_Event] = []
    seen: set[tuple[str, int]] = set()
    for each in same:
        if not each.settled and each.replayed and (each.gateway, each.recorded_us) in seen:
            yield each, DedupVerdict.REPLAYED
            continue
        seen.add((each.gateway, each.recorded_us))
        event = None if each.settled and not each.again else _nearest(events, each)
        if event is None and each.sure:
            insort(events, _Event(each.recorded_us, {each.gateway}), key=_BY_TIME)
        elif event is not None:
            event.gateways.add(each.gateway)
        if not each.settled:
            yield each, DedupVerdict.FIRST if event is None else DedupVerdict.AGAIN


def _nearest(events: list[_Event], each: Sighting) -> _Event | None:
    """Return the event nearest in time that lies within the window and that this gateway has not sent, if there is one."""
    window_us = each.rule.window_us if each.sure else -1
    begin = bisect_left(events, each.recorded_us - window_us, key=_BY_TIME)
    end = bisect_left(events, each.recorded_us + window_us + 1, key=_BY_TIME)
    if end - begin > MAX_IN_WINDOW:
        return None
    candidates = [event for event in events[begin:end] if each.gateway not in event.gateways]
    return min(candidates, key=lambda event: abs(event.recorded_us - each.recorded_us), default=None)


class Rules:
    """Rules for shared events by device and channel. The first entry that matches applies, else the default."""

    def __init__(self, rules: Iterable[SharedSettings]) -> None:
        self._rules = (*rules, SharedSettings())
        self._known: dict[tuple[str, str], SharedSettings] = {}

    def of(self, device: str, subject: str) -> SharedSettings:
        """Return the rule for a device's channel."""
        found = self._known.get((device, subject))
        if found is None:
            found = next(
                rule for rule in self._rules if fnmatchcase(device, rule.device) and fnmatchcase(subject, rule.subject)
            )
            if len(self._known) < _MAX_KNOWN:
                self._known[device, subject] = found
        return found


COMPARED = (
    *("source", "id", "device", "subject", "gateway", "recordedtime", *KafkaPosition._fields),
    *("replayed", "again", "timequality"),
)
"""The columns that show which rows are the same event."""
_IDENTITY = attrgetter("source", "id")


def with_verdicts(rows: pa.Table, table: pa.Table, rules: Rules) -> pa.Table:
    """Return rows of `events` with column `again`, copies as their rules ask. `table`: earlier rows, columns `COMPARED`."""
    same_id = table.filter(pc.is_in(table.column("id"), pc.unique(rows.column("id"))))
    sightings = [*_sightings(rules, same_id, settled=True), *_sightings(rules, rows, settled=False)]
    sightings.sort(key=_IDENTITY)
    cells = {each.position: _cells(verdict, each.rule.strategy) for each, verdict in compare(sightings)}
    positions = zip(*(rows.column(name).to_pylist() for name in KafkaPosition._fields), strict=True)
    again, reasons = zip(*(cells[KafkaPosition(*position)] for position in positions), strict=True)
    rows = _with(rows, "again", pa.array(again, pa.bool_()))
    copies = pa.array(each is not None for each in reasons)
    copied = rows.filter(copies)
    replaced = {
        "outcome": pa.repeat(EventOutcome.DUPLICATE.value, copied.num_rows),
        "reason": pa.array([each for each in reasons if each is not None], pa.string()),
        "readings": pa.array([[]] * copied.num_rows, rows.schema.field("readings").type),
        **{name: pa.nulls(copied.num_rows, rows.schema.field(name).type) for name in ("detail", "data")},
    }
    for name, column in replaced.items():
        copied = _with(copied, name, column)
    return pa.concat_tables([rows.filter(pc.invert(copies)), copied])


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)


def _sightings(rules: Rules, rows: pa.Table, *, settled: bool) -> Iterator[Sighting]:
    columns = {name: rows.column(name) for name in COMPARED}
    columns["recordedtime"] = columns["recordedtime"].cast(pa.int64())
    for cells in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        source, name, device, subject, gateway, recorded_us, *position, replayed, again, quality = cells
        yield Sighting(
            source,
            name,
            gateway or "",
            recorded_us,
            KafkaPosition(*position),
            rules.of(device, subject),
            replayed=replayed,
            settled=settled,
            again=bool(again),
            sure=quality != TimeQuality.UNSYNCED,
        )


def _cells(verdict: DedupVerdict, strategy: Strategy) -> tuple[bool | None, str | None]:
    again = None if strategy is Strategy.NONE else verdict is DedupVerdict.AGAIN
    if verdict is DedupVerdict.REPLAYED:
        return again, "replayed"
    return again, "shared" if again and strategy is Strategy.DROP else None
