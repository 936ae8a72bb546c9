"""One maintenance run: every table loses old rows, small files, unneeded files and old log entries, one step at a time.

Table `events` gets key files, with which the flow finds earlier rows of an event (`fogline_cloud.flows.tables.id_keys`).
"""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fogline.errors import FoglineError
from fogline_cloud.fleet.fleet_table import fleet_of
from fogline_cloud.flows.bodies.body_folder import bodies_in
from fogline_cloud.flows.tables.files import TableFolder, tables_in
from fogline_cloud.maintenance.body_expiry import delete_ended, delete_expired
from fogline_cloud.maintenance.doubled import RECENT, undo_doubled
from fogline_cloud.maintenance.key_files import delete_unneeded_key_files, files_without_keys, write_key_files
from fogline_cloud.maintenance.plan import CLOSED_BYTES, SETTLED, SORTED_BYTES, compactions
from fogline_cloud.maintenance.sorted_days import sort_day, unsorted_days
from fogline_cloud.maintenance.table import MaintainedTable
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.failure import named
from fogline_cloud.store.object_folder import ObjectFolder
from fogline_cloud.store.options import storage_of


class MaintenanceStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finished step, or one to do. `before`, `after`: files of the day. `files`: number of files or counted days."""

    table: str
    step: str  # count, delete, compact, sort, index, unindex, vacuum, log, expire or end
    day: str = ""
    before: int = 0
    after: int = 0
    files: int = 0
    seconds: float = 0
    failure: str = ""

    def __str__(self) -> str:
        """Return the step as a line of text."""
        days = f" of {self.day}" if self.day else ""
        if self.failure:
            return f"{self.table}: {self.step}{days} failed: {self.failure}"
        done = {
            "count": f"{self.files} days counted",
            "delete": f"rows{days} deleted",
            "compact": f"files{days} compacted: {self.before} -> {self.after or 'a few'}",
            "sort": f"files{days} sorted by device: {self.before} -> {self.after or 'a few'}",
            "index": f"key files{days} written: {self.files or self.before}",
            "unindex": f"{self.files} unneeded key files deleted",
            "vacuum": f"{self.files} unneeded files deleted",
            "log": f"{self.files} old log files deleted",
            "expire": f"{self.files} large bodies deleted after their time",
            "end": f"{self.files} large bodies deleted that never came whole",
        }
        return f"{self.table}: {done[self.step]} ({self.seconds:.1f} s)"


_REQUIRED = ("events", "readings")
OnStep = Callable[[MaintenanceStep], None]


def existing(settings: CloudSettings) -> dict[str, TableFolder]:
    """Return the folders of the tables to maintain, by name. `raw` and `fleet` are optional; the others must exist."""
    tables = tables_in(settings.flow.tables, storage_of(settings))
    found: dict[str, TableFolder] = {}
    for name, folder in msgspec.structs.asdict(tables).items():
        with suppress(DeltaError, OSError):  # the other tables are in the same place, and report it
            if name in _REQUIRED or DeltaTable.is_deltatable(folder.uri, folder.storage):
                found[name] = folder
    return found


def maintain(settings: CloudSettings, on_step: OnStep, now: datetime, *, dry_run: bool) -> bool:
    """Do every step that is due. A step that fails does not stop the others. Returns True if none failed."""
    counting = _Run("fleet", on_step, dry_run=dry_run)
    counting.count_fleet(settings, now)
    done = [not counting.failures]
    for name, folder in existing(settings).items():
        run = _Run(name, on_step, dry_run=dry_run, may_delete=name != "events" or not counting.failures)
        try:
            with named():
                run.every_step(MaintainedTable(name, folder), settings, now)
        except FoglineError as error:
            run.failed("open", error)
        done.append(not run.failures)
    run = _Run("bodies", on_step, dry_run=dry_run)
    run.expire_bodies(settings, now)
    return all(done) and not run.failures


def _checked(table: MaintainedTable, rewrite: Callable[[], int]) -> int:
    """Do a step that moves rows to other files, and undo it if they were moved meanwhile."""
    before = table.table.version()
    files = rewrite()
    undo_doubled(table, before)
    return files


class _Run:
    """The steps on one table."""

    def __init__(self, table: str, on_step: OnStep, *, dry_run: bool, may_delete: bool = True) -> None:
        self.failures = 0
        self._may_delete = may_delete
        self._name = table
        self._on_step = on_step
        self._dry_run = dry_run

    def every_step(self, table: MaintainedTable, settings: CloudSettings, now: datetime) -> None:
        today = now.astimezone(UTC).date()
        keep_days = {"raw": settings.flow.raw_days, "fleet": None}.get(self._name, settings.tables.keep_days)
        if isinstance(keep_days, int) and keep_days and self._may_delete:
            first = today - timedelta(days=keep_days)
            if days := table.days_before(first):
                self._do("delete", lambda: table.delete_before(first), day=f"{days[0]} to {days[-1]}")
        sorts = settings.tables.sort_closed_days and self._name == "readings"
        if not self._dry_run:
            undo_doubled(table, max(-1, table.table.version() - RECENT))
        for wanted in compactions(table.files(), today, SORTED_BYTES if sorts else CLOSED_BYTES):
            self._do(
                "compact",
                partial(_checked, table, partial(table.compact, wanted)),
                day=wanted.day,
                before=wanted.files,
                into="after",
            )
        for day, files in unsorted_days(table, (now - SETTLED).astimezone(UTC).date()) if sorts else ():
            self._do(
                "sort", partial(_checked, table, partial(sort_day, table, day)), day=day.isoformat(), before=files, into="after"
            )
        if self._name == "events":
            for day, paths in files_without_keys(table, today).items():
                self._do("index", partial(write_key_files, table, paths), day=day.isoformat(), before=len(paths))
            self._count("unindex", lambda: delete_unneeded_key_files(table, dry_run=self._dry_run))
        if table.vacuum_is_due(now):
            self._count("vacuum", lambda: table.vacuum(settings.tables.vacuum_days, now, dry_run=self._dry_run))
        self._count("log", lambda: table.expire_log(settings.tables.keep_commits, now, dry_run=self._dry_run))

    def count_fleet(self, settings: CloudSettings, now: datetime) -> None:
        """Bring table `fleet` up to date, before days of `events` are deleted."""
        table = fleet_of(settings, now.astimezone(UTC).date())

        def count() -> int:
            with named():
                return len(table.behind() if self._dry_run else table.update().days)

        self._count("count", count)

    def expire_bodies(self, settings: CloudSettings, now: datetime) -> None:
        """Delete large bodies after their time."""
        bodies = ObjectFolder(settings, bodies_in(settings.flow.tables, {}).path)
        self._count("expire", lambda: delete_expired(bodies, settings.tables, now, dry_run=self._dry_run))
        self._count("end", lambda: delete_ended(bodies, settings.tables, now, dry_run=self._dry_run))

    def failed(self, step: str, error: FoglineError, day: str = "") -> None:
        self.failures += 1
        self._on_step(MaintenanceStep(self._name, step, day, failure=str(error)))

    def _do(self, step: str, act: Callable[[], int | None], *, day: str, before: int = 0, into: str = "files") -> None:
        """Do a step unless this is a dry run, and report it."""
        begun = time.monotonic()
        try:
            count = 0 if self._dry_run else act() or 0
        except FoglineError as error:
            self.failed(step, error, day)
        else:
            made = MaintenanceStep(self._name, step, day, before, seconds=time.monotonic() - begun)
            self._on_step(msgspec.structs.replace(made, **{into: count}))

    def _count(self, step: str, act: Callable[[], int]) -> None:
        """Do a step that knows itself what a dry run is. Report it if it deletes files."""
        begun = time.monotonic()
        try:
            count = act()
        except FoglineError as error:
            self.failed(step, error)
        else:
            if count:
                self._on_step(MaintenanceStep(self._name, step, files=count, seconds=time.monotonic() - begun))
