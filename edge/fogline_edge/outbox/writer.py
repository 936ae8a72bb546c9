"""The one thread that owns the database. It waits for work, never polls, and acknowledges nothing before its commit.

A group of arrivals is one transaction. A full database is waited out: the group is kept and tried again when the
bridge has taken rows or the disk has room. Any other failure of the file is fatal: an fsync is never tried twice.
"""

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fogline.crash import CrashPoint, crash_point
from fogline.errors import Unreachable
from fogline.event import Lane
from fogline_edge.boot import SYSTEM, Clock, moment
from fogline_edge.outbox import times
from fogline_edge.outbox.ingest import Act, Group, Ingest, Waiting
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.schema import PAGE_BYTES, used_pages
from fogline_edge.outbox.streams import Streams

REMEMBER_S = 48 * 3600
REMEMBER_EVENTS = 10_000
REMEMBER_COMMANDS_S = 8 * 24 * 3600
"""Longer than any command may live, so that a copy that comes late is known."""
RESERVE = 0.10
"""The share of the file that is kept for replies."""
RESUME = 0.15
"""The share that must be free before other lanes are taken again."""
RETRIED = 32
"""How much of what was held is tried at once: all of it need not fit."""
_AGE_SAVED_EVERY_S = 60

_log = logging.getLogger("fogline.outbox")


@dataclass(frozen=True, slots=True)
class Call:
    """Something to be done with the database, and whom to tell. `done` and `failed` are called on this thread."""

    run: Callable[["Writer"], Any]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]


@dataclass(slots=True)
class Settlement:
    """What the uplink has learnt since the last transaction. `upto` by stream; `sent`: events handed over."""

    upto: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def add(self, later: "Settlement") -> None:
        """Take in what was learnt later."""
        for name, upto in later.upto.items():
            self.upto[name] = max(upto, self.upto.get(name, 0))
        for name, sent in later.sent.items():
            self.sent[name] = self.sent.get(name, 0) + sent


Work = list[Waiting | Act] | Settlement | Call | None


class Told:
    """What the writer tells its owner; each is called on the writer's thread."""

    def __init__(
        self,
        committed: Callable[[list[tuple[Waiting | Act, Any]]], None],
        full: Callable[[bool], None],
        fatal: Callable[[str], None],
        closing: Callable[[Exception | None], None],
    ) -> None:
        self.committed = committed
        self.full = full
        self.fatal = fatal
        self.closing = closing


class Writer:
    """`connection` is used by this thread alone once it runs. `statement_s`: how often counts are stated.

    `handed`: by stream, the highest sequence that the uplink was given in this run.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        tenant: str,
        gateway: str,
        max_bytes: int,
        statement_s: float,
        told: Told,
        clock: Clock = SYSTEM,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.handed: dict[str, int] = {}
        self.age_s = self._saved_age()
        self.identity = (tenant, gateway)
        self._max_pages = max_bytes // PAGE_BYTES
        self._statement_s = statement_s
        self._told = told
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._held: list[Waiting | Act] = []
        self._unsettled = Settlement()
        self._full = False
        self._started_ms = clock.beacon().boottime_ms
        self._base_age_s = self.age_s
        self._next_statement = time.monotonic() + statement_s
        self._next_housekeeping = 0.0
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)
        self._load()

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Hand over work from any thread; `None` ends the thread after what was handed over before."""
        self._queue.put(work)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    # --- on the thread

    def _load(self) -> None:
        self.streams = Streams(self.connection)
        self.ingest = Ingest(self.connection, self.streams, *self.identity, self.clock)

    def _run(self) -> None:
        failure = None
        try:
            while (work := self._queue.get()) is not None:
                self._do(work)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing more may be acknowledged: the process ends
            _log.exception("the outbox's writer ends")
            self._told.fatal(f"the outbox failed: {error}")
            failure = error
        try:
            self._told.closing(failure)
        finally:
            self.connection.close()

    def _do(self, work: Work) -> None:
        match work:
            case Settlement():
                self._settle(work)
            case Call(run, done, failed):
                try:
                    result = run(self)
                except (ValueError, KeyError) as error:
                    failed(error)
                except sqlite3.OperationalError as error:
                    self._wait_for_room(error)
                    failed(Unreachable("the outbox has no room for this at present"))
                else:
                    done(result)
            case list():
                self._store(work)
        self._housekeep()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, durable when it returns. After a failure the streams are as the file says."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:  # whatever it is: all or nothing
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._load()
            raise

    def _store(self, group: list[Waiting | Act]) -> None:
        if self._full:
            group = self._reserved(group)
        if not group:
            return
        try:
            with self.transaction():
                results = self.ingest.store(group, self.age_s)
                self._state_counts()
                crash_point(CrashPoint.BEFORE_COMMIT)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            if all(map(uses_reserve, group)):
                self._held += group
            else:
                self._store(group)  # that is, what of it may use the reserve
            return
        self.ingest.committed()
        crash_point(CrashPoint.AFTER_COMMIT_BEFORE_ACK)
        self._told.committed(list(zip(group, results, strict=True)))
        if used_pages(self.connection) > self._max_pages * (1 - RESERVE):
            self._set_full(True)

    def _reserved(self, group: list[Waiting | Act]) -> list[Waiting | Act]:
        """What of a group is taken although it is full, the rest is held. Nothing overtakes what found no room even there."""
        taken = [] if any(map(uses_reserve, self._held)) else [each for each in group if uses_reserve(each)]
        self._held += [each for each in group if not uses_reserve(each)] if taken else group
        return taken

    def _settle(self, settlement: Settlement) -> None:
        self._unsettled.add(settlement)
        sent, upto = self._unsettled.sent, self._unsettled.upto
        try:
            with self.transaction():
                for name, events in sent.items():
                    self.streams.get(name).counts.sent += events
                for name, sequence in upto.items():
                    self.accept(name, sequence)
                for name in sent.keys() | upto.keys():
                    self.streams.save(self.streams.get(name))
                stated = not self._full and self._state_counts()
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        self._unsettled = Settlement()
        self.ingest.committed()
        if stated:
            self._told.committed([])
        self._retry_held()

    def accept(self, name: str, upto: int) -> None:
        """Within a transaction: the bridge has everything of a stream up to `upto`; its rows go."""
        stream = self.streams.get(name)
        if upto <= stream.settled:
            return
        row = self.connection.execute(SQL["chain_at"], (stream.number, upto)).fetchone()
        self.connection.execute(SQL["delete_settled"], (stream.number, upto))
        stream.counts.settled += upto - stream.settled
        stream.settled = upto
        stream.settled_chain = row[0] if row else b""
        if self.ingest.unsynced:
            self.connection.execute(SQL["drop_unsynced_settled"], (stream.number, upto))
        stream.forget_tail(upto)

    def _retry_held(self) -> None:
        if self._full and used_pages(self.connection) < self._max_pages * (1 - RESUME):
            held, self._held = self._held, []
            self._set_full(False)
            for first in range(0, len(held), RETRIED):
                self._store(held[first : first + RETRIED])

    def _wait_for_room(self, error: sqlite3.OperationalError) -> None:
        """What was begun will be tried again when there is room. Raises `error` if it says anything else."""
        if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise error
        self._set_full(True)

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        if full != self._full:
            self._full = full
            _log.warning("the outbox is full: devices wait" if full else "the outbox has room again")
            self._told.full(full)

    def _state_counts(self) -> bool:
        """Within a transaction: if it is time, append a statement to every open stream whose counts changed.

        Returns whether there was one.
        """
        if time.monotonic() < self._next_statement:
            return False
        self._next_statement = time.monotonic() + self._statement_s
        group = Group(self.age_s)
        for stream in self.streams.opened():
            if stream.arrivals != stream.stated:
                self.ingest.state(group, stream, moment(self.clock))
        self.ingest.write(group)
        return bool(group.touched)

    # --- the gateway's own age, and what it remembers

    def _saved_age(self) -> int:
        row = self.connection.execute(SQL["get_meta"], ("age_s",)).fetchone()
        return int(row[0]) if row else 0

    def _correct_times(self) -> None:
        try:
            with self.transaction():
                more = times.correct(self)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        if more:
            self._queue.put(Settlement())

    def _housekeep(self) -> None:
        """Advance the age (running time over all runs; no clock that is set can change it), forget what is too old."""
        self.age_s = self._base_age_s + (self.clock.beacon().boottime_ms - self._started_ms) // 1000
        if self._full:
            return
        if self.ingest.unsynced and moment(self.clock).synced:
            self._correct_times()
        if time.monotonic() < self._next_housekeeping:
            return
        self._next_housekeeping = time.monotonic() + _AGE_SAVED_EVERY_S
        try:
            with self.transaction():
                self._save_age()
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)

    def _save_age(self) -> None:
        self.connection.execute(SQL["set_meta"], ("age_s", str(self.age_s)))
        if self.age_s > REMEMBER_S and self.age_s % 3600 < _AGE_SAVED_EVERY_S:
            self.connection.execute(SQL["forget"], (self.age_s - REMEMBER_S, REMEMBER_EVENTS))
            self.connection.execute(SQL["forget_slots"], (self.age_s - REMEMBER_S, REMEMBER_EVENTS // 64))
            self.connection.execute(SQL["forget_commands"], (self.age_s - REMEMBER_COMMANDS_S,))


def uses_reserve(work: Waiting | Act) -> bool:
    """Whether this is taken even when the file is full: replies, and what makes or frees a little room."""
    return isinstance(work, Act) or work.arrival.lane is Lane.REPLY


def utc_now() -> str:
    """The wall clock as text, for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")
