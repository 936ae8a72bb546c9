"""One thing that several gateways heard: which rows are the same event. Pure; no Spark is imported here.

Each gateway gives such an event the same id, without knowing of the others. A device's counter stands in the id without
its wraps, so that the id comes again: rows are one event only if they lie within a window of time, and come from different
gateways. What one gateway stored twice is two events: it has held them against each other, and knows more. A row whose time
nobody knows is nobody's copy: when in doubt, it is kept.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from fogline_cloud.settings import SharedSettings

MAX_IN_WINDOW = 64
"""How many events of one identity may lie in a window, and still be told apart."""


class Place(NamedTuple):
    """Where a record stands in Kafka."""

    topic: str
    partition: int
    offset: int


class Sighting(NamedTuple):
    """One row. `recorded_us`: when its gateway stored it. `settled`: it is in the table; `again`: as a copy of another's.

    `sure`: the gateway's clock was known to be right, or was corrected.
    """

    source: str
    id: str
    gateway: str
    recorded_us: int
    place: Place
    rule: SharedSettings
    replayed: bool
    settled: bool
    again: bool
    sure: bool


class Verdict(Enum):
    """What a row is.

    `FIRST`: nobody's copy. `AGAIN`: another gateway's, of one that stands. `REPLAYED`: its own gateway's, sent again.
    """

    FIRST = auto()
    AGAIN = auto()
    REPLAYED = auto()


@dataclass(slots=True)
class _Event:
    """One event, by the time of the row that stands for it, and the gateways that told of it."""

    recorded_us: int
    gateways: set[str]


_BY_TIME = attrgetter("recorded_us")


def judged(sightings: Iterable[Sighting]) -> Iterator[tuple[Sighting, Verdict]]:
    """The verdict on every row that is not settled. `sightings`: those of one identity (source, id) one after the other."""
    for _, same in groupby(sightings, key=lambda each: (each.source, each.id)):
        yield from _judged_alike(list(same))


def _judged_alike(same: list[Sighting]) -> Iterator[tuple[Sighting, Verdict]]:
    """Of one identity: what stands first, then its copies, then the others in the order of time."""
    same.sort(key=lambda each: (not each.settled, each.again, each.recorded_us, each.gateway, each.place))
    events: list[_Event] = []
    told: set[tuple[str, int]] = set()
    for each in same:
        if not each.settled and each.replayed and (each.gateway, each.recorded_us) in told:
            yield each, Verdict.REPLAYED
            continue
        told.add((each.gateway, each.recorded_us))
        event = None if each.settled and not each.again else _nearest(events, each)
        if event is None and each.sure:
            insort(events, _Event(each.recorded_us, {each.gateway}), key=_BY_TIME)
        elif event is not None:
            event.gateways.add(each.gateway)
        if not each.settled:
            yield each, Verdict.FIRST if event is None else Verdict.AGAIN


def _nearest(events: list[_Event], each: Sighting) -> _Event | None:
    """The event within the window that this gateway has not told of, the nearest in time.

    Where there are so many that no counter can have come round as often, none of them is.
    """
    window_us = each.rule.window_us if each.sure else -1
    begin = bisect_left(events, each.recorded_us - window_us, key=_BY_TIME)
    end = bisect_left(events, each.recorded_us + window_us + 1, key=_BY_TIME)
    if end - begin > MAX_IN_WINDOW:
        return None
    may = [event for event in events[begin:end] if each.gateway not in event.gateways]
    return min(may, key=lambda event: abs(event.recorded_us - each.recorded_us), default=None)


class Rules:
    """What is to become of shared events, by device and channel: the first entry that fits decides, else the default."""

    def __init__(self, rules: Iterable[SharedSettings]) -> None:
        self._rules = (*rules, SharedSettings())
        self._known: dict[tuple[str, str], SharedSettings] = {}

    def of(self, device: str, subject: str) -> SharedSettings:
        """The rule for a device's channel."""
        found = self._known.get((device, subject))
        if found is None:
            found = next(
                rule for rule in self._rules if fnmatchcase(device, rule.device) and fnmatchcase(subject, rule.subject)
            )
            if len(self._known) < _MAX_KNOWN:
                self._known[device, subject] = found
        return found


_MAX_KNOWN = 100_000
