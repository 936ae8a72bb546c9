"""Salvages a damaged outbox: copies its readable rows into a new file, sets the old file aside, and records the loss.

The numbering of a damaged file cannot be trusted. So its events go to new streams, marked `replayed`, under their old ids, and
gap records name the missing rows. An unfinished command may have been tried after the readable row was written, so it counts
as `SENDING`: it is done once or ends in doubt.

The new file is made beside the old one and replaces it at the end, so that a crash in between loses nothing.
"""

import logging
import os
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fogline.commands.command import CommandState
from fogline.events.codec import Replay, encode_event
from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, Lost
from fogline.process.files.durable_file import sync_path
from fogline_edge.machine.boot import Clock
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.file.schema import open_database
from fogline_edge.outbox.memory.resend_memory import ENTRY
from fogline_edge.outbox.rows.streams import COMMIT_ID_BYTES, EventRecord, Stream, Streams
from fogline_edge.outbox.salvage.carving import CarvedRow, Carving, Images, event_of
from fogline_edge.outbox.salvage.found_streams import FoundStreams
from fogline_edge.outbox.writer.ingest import insert_many
from fogline_edge.outbox.writer.quarantine import GapRecords

KEPT_ASIDE = 5
"""Number of damaged files that are kept. Their readable rows are in the outbox, and a small disk must not fill up."""
_ROWS_AT_ONCE = 512
_TEN_GIB = 10 * 1024**3

_log = logging.getLogger("fogline.outbox")


@dataclass(slots=True)
class SalvageReport:
    """Result of a salvage: events copied, gap records written, sequences known to be lost, and rows of each other table."""

    events: int = 0
    gaps: int = 0
    lost: int = 0
    others: dict[str, int] = field(default_factory=dict)


def salvage(path: Path, why: str, *, identity: tuple[str, str], clock: Clock) -> Path:
    """Replace the damaged file at `path` by a sound one. Returns the new path of the damaged file.

    Raises `OSError`, `Misconfigured` or `sqlite3.Error` only if the machine lacks space or permission.
    """
    _log.error("the outbox %s is damaged: %s", path, why)
    aside = _free_name(path, clock)
    making = path.with_name(path.name + ".salvaging")
    try:
        report = _make(making, path, identity=identity, clock=clock, why=why)
    except Exception as error:
        if _lacks(error):
            raise
        _log.exception("no row of the damaged outbox %s could be read", path)
        report = _make(making, None, identity=identity, clock=clock, why=f"{why}; nothing of it could be read: {error}")
    making.replace(path.with_name(path.name + ".salvaged"))
    finish(path, aside)
    rows = ", ".join(f"{count} of {table}" for table, count in sorted(report.others.items()))
    _log.error(
        "the outbox continues with a new file: %d events were copied to new streams, %d are known to be lost, %d gap records"
        " were written (other rows: %s); the damaged file is %s",
        report.events, report.lost, report.gaps, rows or "none", aside,
    )  # fmt: skip
    return aside


def resume(path: Path, clock: Clock) -> bool:
    """Finish a salvage that was interrupted after its new file was complete. Returns True if there was one."""
    if not path.with_name(path.name + ".salvaged").exists():
        return False
    finish(path, _free_name(path, clock))
    return True


def finish(path: Path, aside: Path) -> None:
    """Put the salvaged file in the place of the damaged one. It can be repeated after a crash in between."""
    salvaged = path.with_name(path.name + ".salvaged")
    log, index = (path.with_name(path.name + each) for each in ("-wal", "-shm"))
    if path.exists():
        path.replace(aside)
    if log.exists():
        log.replace(aside.with_name(aside.name + "-wal"))
    index.unlink(missing_ok=True)
    salvaged.replace(path)
    sync_path(path.parent)
    _tidy(path, aside)


def _free_name(path: Path, clock: Clock) -> Path:
    now = datetime.fromtimestamp(clock.time_ns() // 1_000_000_000, UTC)
    name = f"{path.name}.damaged-{now:%Y%m%dT%H%M%S}"
    taken = [each.name.removesuffix("-wal").removeprefix(name) for each in path.parent.glob(name + "*")]
    last = max((int(each[1:] or 1) for each in taken if each[1:].isdecimal() or not each), default=0)
    return path.with_name(f"{name}-{last + 1}" if last else name)


def _tidy(path: Path, newest: Path) -> None:
    """Delete all but the newest damaged files, by name. The new one stays, even if the clock went back."""
    found = sorted(each for each in path.parent.glob(path.name + ".damaged-*") if not each.name.endswith("-wal"))
    others = [each for each in found if each != newest]
    for each in others[: max(0, len(others) - KEPT_ASIDE + 1)]:
        _log.error("the damaged file %s is deleted: the %d newest are kept", each, KEPT_ASIDE)
        each.unlink(missing_ok=True)
        each.with_name(each.name + "-wal").unlink(missing_ok=True)


def _make(making: Path, damaged: Path | None, *, identity: tuple[str, str], clock: Clock, why: str) -> SalvageReport:
    """Make the new file with the readable rows of `damaged`. It is durable when this returns."""
    for each in ("", "-wal", "-shm", "-journal"):
        making.with_name(making.name + each).unlink(missing_ok=True)
    connection = open_database(making, _TEN_GIB)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        rebuilt = _Rebuilt(connection, identity, clock, why)
        if damaged is None:
            rebuilt.unknown()
        else:
            rebuilt.copy_rows(damaged)
        rebuilt.save()
        connection.execute("COMMIT")
    finally:
        connection.close()
    sync_path(making)
    return rebuilt.report


def _lacks(error: Exception) -> bool:
    """Return True if the machine lacks something that it may have later."""
    code = getattr(error, "sqlite_errorcode", None)
    environment = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return isinstance(error, OSError) or (code is not None and code & 0xFF in environment)


class _Rebuilt:
    """The new file in the making."""

    def __init__(self, connection: sqlite3.Connection, identity: tuple[str, str], clock: Clock, why: str) -> None:
        self.report = SalvageReport()
        self._connection = connection
        self._gap_records = GapRecords(identity, clock)
        self._why = why
        self._found = FoundStreams(connection)
        self._streams = Streams(connection)
        self._new: dict[Lane, Stream] = {}
        self._commit_id = os.urandom(COMMIT_ID_BYTES)
        self._messages: list[bytes] = []

    def copy_rows(self, damaged: Path) -> None:
        """Copy all readable rows."""
        images = Images(damaged, damaged.with_name(damaged.name + "-wal"))
        try:
            carving = Carving(images)
            for found in carving.rows():
                if found.table == "event":
                    event = event_of(found.cell)
                    self._found.note_event(event, found)
                    if event.message is not None and found.rank == 0:
                        self._messages.append(event.message)
                elif found.table == "stream":
                    self._found.note_stream(found)
                elif found.rank == 0 or found.table not in carving.whole:
                    self._copy(found)
            self._append_events(carving)
            if self._found.contradicted or "stream" not in carving.whole or self._why.endswith(LOG_MISSING):
                self.unknown()
        finally:
            images.close()

    def unknown(self) -> None:
        """Write a gap record which says that unknown events may be lost."""
        self._gap(Lane.ALARM, Lost(), "what else it held cannot be known")

    def save(self) -> None:
        """Write the new streams, and the messages of their events."""
        entries = [each[: ENTRY.size] for each in sorted(self._messages, key=lambda each: each[ENTRY.size :])]
        for first in range(0, len(entries), _ROWS_AT_ONCE):
            self._connection.execute(SQL["add_resends"], (b"".join(entries[first : first + _ROWS_AT_ONCE]),)).fetchall()
        for stream in self._new.values():
            self._flush(stream)
            self._streams.changed(stream)
        self._streams.save()
        self._found.close()

    def _copy(self, found: CarvedRow) -> None:
        """Copy a row of another table, unless a newer image of it was copied."""
        values = found.cell.values
        if found.table == "meta":
            if values[0] != "age_s" or not str(values[1]).isdecimal():
                return
        elif found.table == "command":
            state = str(values[13])
            over = state in CommandState.__members__ and CommandState(state).terminal
            values = (found.cell.rowid, *values[1:13], state if over else CommandState.SENDING.value, *values[14:])
        table = found.table
        marks = ", ".join("?" * len(values))
        statement = f"INSERT OR IGNORE INTO {table} VALUES ({marks})"  # noqa: S608 - one of our own names
        others, taken = self.report.others, self._connection.execute(statement, values).rowcount
        others[table] = others.get(table, 0) + taken

    # --- events

    def _append_events(self, carving: Carving) -> None:
        """Append all events, stream by stream in order, with a gap record for each missing range."""
        strays: list[Replay] = []
        for number in self._found.numbers():
            former, name = self._found.stream(number, carving)
            expected = former.settled + 1 if former else 0
            for replay in self._found.in_order(number, name, expected, carving, strays):
                lane = former.lane if former else replay.lane
                if former is None and expected == 0:
                    self._gap(lane, Lost(name, None, None), "which other events there were cannot be known")
                elif replay.first > expected:
                    self._gap(lane, Lost(name, expected, replay.first - 1))
                self._append(lane, replay)
                expected = replay.sequence + 1
            if former is not None and expected <= former.head:
                self._gap(former.lane, Lost(former.stream, expected, former.head))
        for replay in strays:
            self._append(replay.lane, replay)

    def _stream(self, lane: Lane) -> Stream:
        if lane not in self._new:
            self._new[lane] = self._streams.open(lane, "salvaged")
        return self._new[lane]

    def _append(self, lane: Lane, replay: Replay) -> None:
        stream = self._stream(lane)
        self._insert(stream, replay.encode(stream.stream, stream.head + 1))
        self.report.events += 1

    def _gap(self, lane: Lane, lost: Lost, detail: str = "") -> None:
        """Append a gap record for a loss to the lane's new stream."""
        stream = self._stream(lane)
        if lost.first is not None and lost.last is not None:
            self.report.lost += lost.last - lost.first + 1
            detail = f"sequences {lost.first} to {lost.last} of stream {lost.stream} cannot be read"
        place = stream.head + 1
        gap = Gap(GapReason.DAMAGED, place, place, f"the outbox was damaged ({self._why}): {detail}", lost=lost)
        self._insert(stream, encode_event(self._gap_records.make(gap, stream, replayed=True)))
        self.report.gaps += 1

    def _insert(self, stream: Stream, body: bytes) -> None:
        stream.head += 1
        stream.counts.stored += 1
        stream.unwritten.append((EventRecord(stream.head, self._commit_id, body), None))
        if len(stream.unwritten) >= _ROWS_AT_ONCE:
            self._flush(stream)

    def _flush(self, stream: Stream) -> None:
        insert_many(self._connection, stream.take_unwritten()[1])


LOG_MISSING = "its log is missing"
