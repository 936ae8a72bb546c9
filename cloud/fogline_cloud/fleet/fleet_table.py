"""Table `fleet`, and what came to `events` since it was counted.

The version of the Delta transaction application `fogline/fleet/{id of table events}` is the version of `events` that the rows
stand for. One commit replaces the rows of all days that changed, and sets that version; so a kill anywhere leaves the former
rows with the former version, and of two programs that do this at once Delta refuses one.

| a day of `events` | its rows in `fleet` |
|---|---|
| only got new rows | the rows of the new files are added |
| lost rows too: a replay, `table forget`, a user's DELETE | all of its files are counted again |
| has another number of rows than was counted, for whatever reason | all of its files are counted again |
| is gone (`tables.keep_days`) | they stay |
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError

from fogline.errors import Unreachable
from fogline_cloud.fleet.changes import ANEW, DayChange, changed_days
from fogline_cloud.fleet.events_source import EventsSource
from fogline_cloud.fleet.fleet_files import FleetFiles
from fogline_cloud.fleet.summary import STORED, added_up, rows_of_events
from fogline_cloud.flows.tables.files import TableFolder, tables_in
from fogline_cloud.flows.tables.readers import note_reader
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import first_line
from fogline_cloud.store.options import storage_of

READER = "fleet"
"""Name of this reader of `events` (`fogline table readers`)."""
ATTEMPTS = 8
"""Number of times that a step is tried while others commit."""

log = logging.getLogger(__name__)
T = TypeVar("T")


class FleetUpdate(msgspec.Struct, frozen=True):
    """What an update changed. `version`: that of `events` for which the rows stand now."""

    version: int
    days: tuple[str, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class CountedDays:
    """Rows of `fleet` by day, instead of those that the table has in this version, None if there is no table."""

    version: int | None
    days: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class _Look:
    """Both tables at one moment; `fleet` was looked at first. `counted`: version of `events` for which its rows stand."""

    fleet: FleetFiles
    events: EventsSource
    counted: int | None
    changes: Mapping[str, DayChange]


class FleetTable:
    """Table `fleet` beside table `events`. `keep_days`: days for which rows of `events` are kept, None: for ever.

    Each method looks at the tables anew. They raise `Misconfigured`, and `Unreachable` if the store is away.
    """

    def __init__(self, fleet: TableFolder, events: TableFolder, keep_days: int | None, today: date) -> None:
        self._folder = fleet
        self._events = events
        self._closed_before = "" if keep_days is None else (today - timedelta(days=keep_days)).isoformat()

    def behind(self) -> tuple[str, ...]:
        """Return the days that an update would look at."""
        return tuple(sorted(self._look().changes))

    def update(self) -> FleetUpdate:
        """Bring the table up to date. Killed at any point, it changes nothing."""
        return self._retried(self._update)

    def current(self, columns: Sequence[str] = STORED.names, since: date = date.min) -> pa.Table:
        """Return the rows that an up-to-date table would have, of days from `since` on, by column `heard`.

        Days of which `events` has changed since the last update are counted from there.
        """
        return self._retried(lambda: self._current(list(columns), since))

    def counted_since(self) -> CountedDays:
        """Return the rows of the days that the table lacks, or has otherwise, at its newest version."""

        def step() -> CountedDays:
            look = self._look()
            return CountedDays(look.fleet.version, self._counted_days(look))

        return self._retried(step)

    def count_of(self, tenant: str, device: str) -> dict[str, int]:
        """Return the number of a device's rows by day."""
        return self._retried(lambda: _removed(self._look().fleet, tenant, device)[1])

    def forget(self, tenant: str, device: str) -> dict[str, int]:
        """Delete the rows of a device. Returns their number by day.

        An update that has begun before does not commit any more: it may have counted the device's events.
        """

        def step() -> dict[str, int]:
            look = self._look()
            left, counts = _removed(look.fleet, tenant, device)
            if look.fleet.version is not None:
                look.fleet.replace(left, look.events.table_id, None)
            return counts

        return self._retried(step)

    def _look(self) -> _Look:
        fleet = FleetFiles(self._folder)
        events = EventsSource(self._events)
        counted = fleet.stands_for(events.table_id)
        entries = None if counted is None else events.entries(counted)
        changes = changed_days(entries) if entries is not None else dict.fromkeys(events.files, ANEW)
        return _Look(fleet, events, counted, changes)

    def _update(self) -> FleetUpdate:
        look = self._look()
        if look.fleet.version is None:
            look.fleet.create()
            look = self._look()  # another program may have created it, and counted
        days = self._counted_days(look)
        if look.counted != look.events.version:
            look.fleet.replace(days, look.events.table_id, look.events.version)
        note_reader(self._events, READER, look.events.version)
        return FleetUpdate(look.events.version, tuple(days), sum(map(len, days.values())))

    def _current(self, columns: list[str], since: date) -> pa.Table:
        look = self._look()
        wanted = list(dict.fromkeys([*columns, "heard"]))
        parts = [STORED.empty_table().select(wanted)]
        for day in sorted({*look.fleet.days, *look.changes}):
            if day < since.isoformat():
                continue  # nothing was heard after the day on which it came in
            counted = self._counted(day, look) if day in look.changes else None
            parts.append(counted.select(wanted) if counted is not None else look.fleet.read(day, wanted))
        rows = pa.concat_tables(parts)
        if since > date.min:
            rows = rows.filter(pc.greater_equal(rows.column("heard"), pa.scalar(since)))
        return rows.select(columns)

    def _counted_days(self, look: _Look) -> dict[str, pa.Table]:
        return {day: rows for day in sorted(look.changes) if (rows := self._counted(day, look)) is not None}

    def _counted(self, day: str, look: _Look) -> pa.Table | None:
        """Return the rows of a day that has changed, None if they stay as they are."""
        events, change, present = look.events, look.changes[day], look.events.files.get(day)
        if not present:
            return None
        former = look.fleet.read(day)
        if not change.is_counted_anew:
            with suppress(FileNotFoundError):  # the file was compacted, and deleted since
                added = [rows_of_events(rows) for rows in events.read(change.added)]
                rows = added_up([former, *added]) if added else former
                if events.rows[day] in {None, pc.sum(rows.column("events")).as_py() or 0}:
                    return rows if added else None
        if len(former) and day < self._closed_before and (look.counted is None or not events.has_day(day, look.counted)):
            return None  # tables.keep_days had deleted the day, and a replay has brought some of it back
        return added_up(rows_of_events(rows) for rows in events.read(present))

    def _retried(self, step: Callable[[], T]) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return step()
            except (CommitFailedError, FileNotFoundError) as error:  # another commit came first, or moved rows meanwhile
                log.info("%s: attempt %d of %d: %s", self._folder.path, attempt, ATTEMPTS, first_line(error))
        raise Unreachable(f"{self._folder.path}: other commits came first {ATTEMPTS} times: try again later")


def fleet_of(settings: CloudSettings, today: date) -> FleetTable:
    """Return the table of these settings. Raises `Misconfigured`."""
    tables = tables_in(settings.flow.tables, storage_of(settings))
    return FleetTable(tables.fleet, tables.events, settings.tables.keep_days, today)


def _removed(fleet: FleetFiles, tenant: str, device: str) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Return the rows that are left of each day that has rows of a device, and the number of the others."""
    left, counts = {}, {}
    for day in fleet.days:
        rows = fleet.read(day)
        own = pc.and_(pc.equal(rows.column("device"), device), pc.fill_null(pc.equal(rows.column("tenant"), tenant), True))
        others = rows.filter(pc.invert(pc.fill_null(own, False)))
        if len(others) < len(rows):
            left[day], counts[day] = others, len(rows) - len(others)
    return left, counts
