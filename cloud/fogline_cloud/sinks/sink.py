"""One sink: it follows a table, and writes each version into a database in one transaction, with the position.

A version that only adds rows may share the transaction with others. One that removes rows (a replay, a forgotten device, an
expired day) deletes and inserts in a transaction of its own. The first start copies a snapshot, file by file, and so does one
that cannot follow the log any more; a copy that was interrupted goes on.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from fogline.errors import Misconfigured, Unreachable
from fogline.process.service_manager import tell_progress
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.readers import note_reader
from fogline_cloud.sink_settings import SinkSettings
from fogline_cloud.sinks.columns import IDENTITY, NEVER_NULL, written_columns
from fogline_cloud.sinks.commits import Holds, TableFile
from fogline_cloud.sinks.database import Database, connected
from fogline_cloud.sinks.dialects import DIALECTS
from fogline_cloud.sinks.place import Place
from fogline_cloud.sinks.plan import Changes, SnapshotCopy, next_changes, next_copy
from fogline_cloud.sinks.position import COMPLETE, NOTHING, Position, digest, mismatch
from fogline_cloud.sinks.source import LogCutError, Source
from fogline_cloud.sinks.values import as_written, read_schema, written_schema
from fogline_cloud.store.failure import first_line

log = logging.getLogger(__name__)

BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Waits after the first and each further failure of database or store."""
POLL_S = 1.0
"""Interval at which a sink looks for new versions."""


class SinkProgress(msgspec.Struct, frozen=True):
    """One transaction. `first`, `last`: its versions. `files`: copied files of `all_files` in a copy, else 0.

    `behind`: versions that are not written yet.
    """

    first: int
    last: int
    inserted: int
    deleted: int
    seconds: float
    behind: int
    files: int = 0
    all_files: int = 0


class OvertakenError(Exception):
    """Another process writes under the name of this sink."""


class Sink:
    """Writes one table into one database. Not thread-safe. `copy_again`: copy the table anew, once.

    Raises `Misconfigured` for columns that the table does not have, and if the table cannot be read.
    """

    def __init__(
        self, name: str, settings: SinkSettings, folder: TableFolder, place: Place, *, copy_again: bool = False
    ) -> None:
        self._name = name
        self._settings = settings
        self._place = place
        self._columns = written_columns(settings.source, settings.columns)
        self._schema = read_schema(self._columns)
        self._identity = pa.schema([self._schema.field(each) for each in IDENTITY[settings.source]])
        self._never_null = NEVER_NULL[settings.source]
        self._source = Source(folder)
        self._copy_again = copy_again
        self._stored: Position | None = None  # as the database has it, as far as this process knows
        self._snapshot: tuple[int, list[TableFile]] | None = None
        self._has_warned = False
        self._transactions = 0

    @property
    def target(self) -> str:
        """The name of the table in the database."""
        return self._settings.table or self._settings.source

    def catch_up(self, stop: threading.Event, on_progress: Callable[[SinkProgress], None]) -> bool:
        """Write every version that there is, until `stop` is set, or nothing can be written. Returns True if nothing was left.

        Raises `Unreachable` if database or store are away, `Misconfigured` if the user has to change something.
        """
        before = -1
        while not stop.is_set():
            if self._is_current():
                return True
            if self._transactions == before:  # another process was faster, or the next version cannot be read yet
                return False
            before = self._transactions
            try:
                with connected(self._place) as database:
                    self._write_all(database, stop, on_progress)
            except OvertakenError:
                log.warning("sink %s: another process writes under this name: going on after it", self._name)
        return False

    def _is_current(self) -> bool:
        """Return True if the database has the newest version. It reads two entries of the log, and not the database."""
        at = self._stored
        if at is None or at.files != COMPLETE or self._copy_again:
            return False
        entry = self._source.entry(at.version)
        if digest(entry) != at.entry:
            self._source.reload()
            return entry is None and self._source.newest() == at.version and self._source.table_id == at.table_id
        return self._source.entry(at.version + 1) is None

    def _write_all(self, database: Database, stop: threading.Event, on_progress: Callable[[SinkProgress], None]) -> None:
        at = self._prepare(database)
        while not stop.is_set():
            began = time.monotonic()
            try:
                step = self._next(at)
                if step is None:
                    return
                inserted, deleted, reached = self._write(database, at, step)
            except LogCutError as error:
                if at.files != COMPLETE and at.version >= self._source.newest():
                    raise Misconfigured(f"{self._source.folder.path}: {error}: run `fogline ledger verify`") from None
                at = self._new_copy(str(error))
                continue
            at = reached
            self._note(at.version)
            behind, seconds = self._source.newest() - at.version, time.monotonic() - began
            if isinstance(step, SnapshotCopy):
                counts = step.done, len(self._files(step.version))
                on_progress(SinkProgress(step.version, step.version, inserted, deleted, seconds, behind, *counts))
            else:
                on_progress(SinkProgress(step.first, step.last, inserted, deleted, seconds, behind))

    def _prepare(self, database: Database) -> Position:
        """Make or check the tables. Returns the position from which the sink goes on."""
        has = database.columns_of(self.target)
        if has is None:
            hypertable = self._settings.hypertable
            database.create(self.target, self._columns, self._never_null, hypertable=hypertable)
        elif missing := [each.name for each in self._columns if each.name not in has]:
            raise Misconfigured(
                f"{self._place.product} {self._place.shown}: table {self.target} has no column {missing[0]}: add it "
                "(docs/sinks.md has the types), leave it out of columns, or drop the table, which is then copied anew"
            )
        database.prepare_position(self._name)
        self._stored = stored = database.positions()[self._name]
        is_ours = stored != NOTHING and stored.target == self.target
        if has is not None and not is_ours and not database.is_empty(self.target):
            raise Misconfigured(
                f"{self._place.product} {self._place.shown}: table {self.target} has rows that sink {self._name} has not "
                "written: empty it, or name another one in table"
            )
        why = "it was asked for" if self._copy_again else ""
        why = why or ("" if has is not None or not is_ours else f"the table {self.target} was gone")
        if not why and stored != NOTHING and self._source.newest() < stored.version:
            why = f"the Delta table was set back to version {self._source.newest()}"
        why = why or mismatch(stored, self.target, self._source.table_id, self._source.entry(stored.version))
        return self._new_copy(why) if why else stored

    def _new_copy(self, why: str) -> Position:
        version = self._source.newest()
        self._snapshot = None
        log.info("sink %s: copying version %d of the table: %s", self._name, version, why)
        self._note(version)
        entry = digest(self._source.entry(version))
        return Position(self.target, self._source.table_id, version, 0, entry)

    def _next(self, at: Position) -> Changes | SnapshotCopy | None:
        if at.files != COMPLETE:
            return next_copy(at.version, self._files(at.version), at.files, self._settings.transaction_rows)
        commits = self._source.commits(at.version + 1, self._source.newest())
        return next_changes(commits, self._settings.transaction_rows)

    def _files(self, version: int) -> list[TableFile]:
        if self._snapshot is None or self._snapshot[0] != version:
            self._snapshot = version, self._source.files(version)
        return self._snapshot[1]

    def _write(self, database: Database, at: Position, step: Changes | SnapshotCopy) -> tuple[int, int, Position]:
        """Write one transaction. Returns the number of rows that it inserts and deletes, and the new position."""
        deleted = 0
        with database.transaction():
            if database.lock_position(self._name) != self._stored:
                raise OvertakenError
            if isinstance(step, SnapshotCopy):
                if at.files == 0:
                    database.empty(self.target)
                reached = msgspec.structs.replace(at, files=COMPLETE if step.is_last else step.done)
            else:
                if any(each.holds is not Holds.INSERTED for each in step.files):
                    deleted = self._delete(database, step.files)
                reached = msgspec.structs.replace(at, version=step.last, entry=step.entry)
            inserted = self._insert(database, step.files)
            database.set_position(self._name, reached)
        self._stored, self._copy_again = reached, False
        self._transactions += 1
        return inserted, deleted, reached

    def _insert(self, database: Database, files: Sequence[TableFile]) -> int:
        if not any(each.holds is not Holds.DELETED for each in files):
            return 0
        rows = self._written(self._source.inserted(files, self._schema))
        return database.insert(self.target, written_schema(self._schema), rows)

    def _delete(self, database: Database, files: Sequence[TableFile]) -> int:
        rows = self._written(self._source.deleted(files, self._identity))
        return database.delete(self.target, self._identity, rows, self._never_null)

    def _written(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        has_nul = DIALECTS[self._place.kind].has_nul
        return (as_written(each, has_nul=has_nul) for each in rows)

    def _note(self, version: int) -> None:
        """Let maintenance keep what comes after a version. If that fails, it keeps a few days only."""
        try:
            note_reader(self._source.folder, reader_of(self._name), version)
        except (OSError, DeltaError) as error:
            if not self._has_warned:
                log.warning("sink %s: maintenance keeps no changes for it: %s", self._name, first_line(error))
            self._has_warned = True


def reader_of(sink: str) -> str:
    """Return the name under which maintenance knows a sink."""
    return f"sink-{sink}"


def run_sink(
    sink: Sink,
    stop: threading.Event,
    *,
    on_progress: Callable[[SinkProgress], None],
    on_current: Callable[[], None],
    on_failure: Callable[[str], None],
    once: bool = False,
) -> bool:
    """Write until `stop` is set, or with `once` until the database has the newest version. Returns True in that case.

    `on_current`: called whenever the database has it. Waits if database or store are away, after a call of `on_failure`.
    Raises `Misconfigured`. It ends after the transaction that runs when `stop` is set.
    """
    failures = 0

    def progressed(progress: SinkProgress) -> None:
        nonlocal failures
        failures = 0
        tell_progress()
        on_progress(progress)

    while not stop.is_set():
        try:
            is_current = sink.catch_up(stop, progressed)
        except Unreachable as error:
            delay_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
            failures += 1
            log.warning("%s. Retrying in %.0f s.", error, delay_s)
            on_failure(str(error))
        else:
            failures, delay_s = 0, POLL_S
            if is_current:
                on_current()
            if is_current and once:
                return True
        tell_progress()
        stop.wait(delay_s)
    return False
