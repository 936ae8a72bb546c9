"""A damaged outbox: what can be read is taken over into a new file, the old one is set aside, the loss is told.

The numbering of a damaged file cannot be trusted: its events go to new streams, marked `replayed`, under the ids that they
have. Where rows are missing, a gap record says which. A command that was not over may have been tried since what can be
read was written: it counts as under way, so that it is done once or is in doubt.

The new file is made beside the old one and takes its place at the end, so that a crash in between loses nothing.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fogline.codec import Replay, encode_event
from fogline.command import State
from fogline.errors import Poison
from fogline.event import Lane
from fogline.gap import Gap, GapReason, Lost, gap_event
from fogline.identity import chained
from fogline_edge.boot import Clock, time_quality
from fogline_edge.outbox.carving import Carving, Found, Images
from fogline_edge.outbox.ingest import insert_many
from fogline_edge.outbox.schema import open_database
from fogline_edge.outbox.streams import Stream, Streams

KEPT_ASIDE = 5
"""How many damaged files are kept. What could be read of them is in the outbox; a small disk must not fill up with them."""
_ROWS_AT_ONCE = 512
_TEN_GIB = 10 * 1024**3

_log = logging.getLogger("fogline.outbox")


@dataclass(slots=True)
class Former:
    """What is known of a stream of the damaged file."""

    stream: str
    lane: Lane
    head: int
    settled: int


@dataclass(slots=True)
class Report:
    """What became of a damaged file: events taken over, gap records written, rows of each other table."""

    events: int = 0
    gaps: int = 0
    lost: int = 0
    others: dict[str, int] = field(default_factory=dict)


def salvage(path: Path, why: str, *, identity: tuple[str, str], clock: Clock) -> Path:
    """Put a sound file in the place of the damaged one at `path`. Returns where that one is now.

    Raises `OSError`, `Misconfigured` or `sqlite3.Error` only for what the machine lacks (space, permission).
    """
    _log.error("the outbox %s is damaged: %s", path, why)
    aside = _free_name(path, clock)
    making = path.with_name(path.name + ".salvaging")
    try:
        report = _make(making, path, identity=identity, clock=clock, why=why)
    except Exception as error:
        if _lacks(error):
            raise
        _log.exception("nothing of the damaged outbox %s could be taken over", path)
        report = _make(making, None, identity=identity, clock=clock, why=f"{why}; nothing of it could be read: {error}")
    making.replace(path.with_name(path.name + ".salvaged"))
    finish(path, aside)
    rows = ", ".join(f"{count} of {table}" for table, count in sorted(report.others.items()))
    _log.error(
        "the outbox goes on with a new file: %d events were taken over to new streams, %d are known to be lost, %d gap records"
        " say so (%s); the damaged file is %s",
        report.events, report.lost, report.gaps, rows or "nothing else was there", aside,
    )  # fmt: skip
    return aside


def resume(path: Path, clock: Clock) -> bool:
    """Go on with a salvage that was cut short when its new file was made. Returns whether there was one."""
    if not path.with_name(path.name + ".salvaged").exists():
        return False
    finish(path, _free_name(path, clock))
    return True


def finish(path: Path, aside: Path) -> None:
    """Let the salvaged file take the place of the damaged one. After a crash in between, it is done again."""
    salvaged = path.with_name(path.name + ".salvaged")
    log, index = (path.with_name(path.name + each) for each in ("-wal", "-shm"))
    if path.exists():
        path.replace(aside)
    if log.exists():
        log.replace(aside.with_name(aside.name + "-wal"))
    index.unlink(missing_ok=True)
    salvaged.replace(path)
    _sync(path.parent)
    _tidy(path, aside)


def _free_name(path: Path, clock: Clock) -> Path:
    now = datetime.fromtimestamp(clock.time_ns() // 1_000_000_000, UTC)
    name = f"{path.name}.damaged-{now:%Y%m%dT%H%M%S}"
    taken = [each.name.removesuffix("-wal").removeprefix(name) for each in path.parent.glob(name + "*")]
    last = max((int(each[1:] or 1) for each in taken if each[1:].isdecimal() or not each), default=0)
    return path.with_name(f"{name}-{last + 1}" if last else name)


def _tidy(path: Path, newest: Path) -> None:
    """Keep the newest few. By their names; the one just made stays, whatever the clock says."""
    found = sorted(each for each in path.parent.glob(path.name + ".damaged-*") if not each.name.endswith("-wal"))
    others = [each for each in found if each != newest]
    for each in others[: max(0, len(others) - KEPT_ASIDE + 1)]:
        _log.error("the damaged file %s is deleted: the %d newest are kept", each, KEPT_ASIDE)
        each.unlink(missing_ok=True)
        each.with_name(each.name + "-wal").unlink(missing_ok=True)


def _make(making: Path, damaged: Path | None, *, identity: tuple[str, str], clock: Clock, why: str) -> Report:
    """The new file, with what can be read of `damaged`, durable when it returns."""
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
            rebuilt.take_over(damaged)
        rebuilt.save()
        connection.execute("COMMIT")
    finally:
        connection.close()
    _sync(making)
    return rebuilt.report


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _lacks(error: Exception) -> bool:
    """Whether this is for want of something that the machine may have later."""
    code = getattr(error, "sqlite_errorcode", None)
    environment = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return isinstance(error, OSError) or (code is not None and code & 0xFF in environment)


class _Rebuilt:
    """The new file while it is made."""

    def __init__(self, connection: sqlite3.Connection, identity: tuple[str, str], clock: Clock, why: str) -> None:
        self.report = Report()
        self._connection = connection
        self._identity = identity
        self._clock = clock
        self._why = why
        self._former: dict[int, Former] = {}
        self._streams = Streams(connection)
        self._new: dict[Lane, Stream] = {}
        self._nonce = os.urandom(8)
        connection.execute("CREATE TEMP TABLE found (stream, sequence, rank, place, offset)")

    def take_over(self, damaged: Path) -> None:
        """Everything that can be read."""
        images = Images(damaged, damaged.with_name(damaged.name + "-wal"))
        try:
            carving = Carving(images)
            events: list[tuple[object, ...]] = []
            for found in carving.rows():
                if found.table == "event":
                    stream, sequence, _, _ = found.cell.values
                    events.append((stream, sequence, found.rank, found.place, found.cell.offset))
                    if len(events) >= _ROWS_AT_ONCE:
                        self._note(events)
                elif found.table == "stream":
                    self._know(found)
                elif found.rank == 0 or found.table not in carving.whole:
                    self._copy(found)
            self._note(events)
            self._append_events(carving)
            if "stream" not in carving.whole or self._why.endswith(LOG_MISSING):
                self.unknown()
        finally:
            images.close()

    def unknown(self) -> None:
        """Say that more may be lost than is known."""
        self._gap(Lane.ALARM, Lost(), "what else it held cannot be known")

    def save(self) -> None:
        """The streams as they are now."""
        for stream in self._new.values():
            self._flush(stream)
            self._streams.save(stream)
        self._connection.execute("DROP TABLE found")

    def _note(self, events: list[tuple[object, ...]]) -> None:
        self._connection.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?)", events)
        events.clear()

    def _know(self, found: Found) -> None:
        """A row of `stream`; older ones say less."""
        _, name, lane, _, head, _, settled, *_ = found.cell.values
        former = self._former.setdefault(found.cell.rowid, Former(str(name), Lane(str(lane)), 0, 0))
        if former.stream == name:
            former.head, former.settled = max(former.head, int(str(head))), max(former.settled, int(str(settled)))

    def _copy(self, found: Found) -> None:
        """A row of another table, unless a newer one is there."""
        values = found.cell.values
        if found.table == "meta":
            if values[0] != "age_s" or not str(values[1]).isdecimal():
                return
        elif found.table == "command":
            state = str(values[13])
            over = state in State.__members__ and State(state).terminal
            values = (found.cell.rowid, *values[1:13], state if over else State.SENDING.value, *values[14:])
        marks = ", ".join("?" * len(values))
        statement = f"INSERT OR IGNORE INTO {found.table} VALUES ({marks})"  # noqa: S608 - one of our own names
        others, taken = self.report.others, self._connection.execute(statement, values).rowcount
        others[found.table] = others.get(found.table, 0) + taken

    # --- events

    def _append_events(self, carving: Carving) -> None:
        """All of them, stream by stream in their order, with a gap record wherever some are missing."""
        strays: list[Replay] = []
        numbers = {row[0] for row in self._connection.execute("SELECT DISTINCT stream FROM found")}
        for number in sorted(numbers | self._former.keys()):
            former = self._former.get(number)
            expected = former.settled + 1 if former else 0
            last: tuple[str, Lane] | None = (former.stream, former.lane) if former else None
            for sequence, replay in self._in_order(number, expected, carving, strays):
                name, lane = last = last or (replay.stream, replay.lane)
                if former is None and expected == 0:
                    self._gap(lane, Lost(name, None, None), "which other events there were cannot be known")
                elif replay.first > expected:
                    self._gap(lane, Lost(name, expected, replay.first - 1))
                self._append(lane, replay)
                expected = sequence + 1
            if former is not None and expected <= former.head:
                self._gap(former.lane, Lost(former.stream, expected, former.head))
        for replay in strays:
            self._append(replay.lane, replay)

    def _in_order(self, number: int, first: int, carving: Carving, strays: list[Replay]) -> Iterator[tuple[int, Replay]]:
        """The readable rows of a stream from `first` on, each once."""
        rows = self._connection.execute(
            "SELECT sequence, rank, place, offset FROM found WHERE stream = ? AND sequence >= ? ORDER BY sequence, rank, rowid",
            (number, first),
        )
        taken = 0
        for sequence, rank, place, offset in rows:
            if sequence == taken:
                continue
            try:
                replay = Replay(carving.body(place, offset))
            except (ValueError, IndexError, AssertionError, Poison):
                continue
            if replay.sequence == sequence:
                taken = sequence
                yield sequence, replay
            elif rank == 0:  # its number is damaged; the event itself can be read
                strays.append(replay)

    def _stream(self, lane: Lane) -> Stream:
        if lane not in self._new:
            self._new[lane] = self._streams.open(lane, "salvaged")
        return self._new[lane]

    def _append(self, lane: Lane, replay: Replay) -> None:
        stream = self._stream(lane)
        self._insert(stream, replay.encode(stream.stream, stream.head + 1))
        self.report.events += 1

    def _gap(self, lane: Lane, lost: Lost, detail: str = "") -> None:
        """A gap record for what is missing, in the new stream of the lane."""
        stream, (tenant, gateway), now_ns = self._stream(lane), self._identity, self._clock.time_ns()
        if lost.first is not None and lost.last is not None:
            self.report.lost += lost.last - lost.first + 1
            detail = f"sequences {lost.first} to {lost.last} of stream {lost.stream} cannot be read"
        place = stream.head + 1
        gap = Gap(GapReason.DAMAGED, place, place, f"the outbox was damaged ({self._why}): {detail}", lost=lost)
        event = gap_event(
            gap,
            tenant=tenant,
            gateway=gateway,
            stream=stream.stream,
            lane=lane,
            now_ns=now_ns,
            timequality=time_quality(self._clock),
            replayed=True,
        )
        self._insert(stream, encode_event(event))
        self.report.gaps += 1

    def _insert(self, stream: Stream, body: bytes) -> None:
        stream.head += 1
        stream.counts.stored += 1
        stream.chain = chained(stream.chain, "", body, self._nonce)
        stream.fresh.append((stream.number, stream.head, stream.chain, body))
        if len(stream.fresh) >= _ROWS_AT_ONCE:
            self._flush(stream)

    def _flush(self, stream: Stream) -> None:
        rows, stream.fresh = stream.fresh, []
        insert_many(self._connection, rows)


LOG_MISSING = "its log is missing"
