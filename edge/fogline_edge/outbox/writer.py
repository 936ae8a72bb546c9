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
from datetime import UTC, datetime

from fogline.crash import CrashPoint, crash_point
from fogline.dead import DEAD_TYPE, dead_letter
from fogline.errors import Poison, Unreachable
from fogline.event import Arrival, Lane
from fogline_edge.boot import SYSTEM, Clock, moment
from fogline_edge.outbox import dropping, times
from fogline_edge.outbox.age import SAVED_EVERY_S, Age
from fogline_edge.outbox.forgetting import Forgetting
from fogline_edge.outbox.ingest import Act, Group, Ingest, Waiting
from fogline_edge.outbox.quarantine import Quarantine
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.schema import PAGE_BYTES, used_pages
from fogline_edge.outbox.streams import Streams
from fogline_edge.outbox.writer_queue import FAILED, Call, Nudge, Settlement, Told, Work

RESERVE = 0.10
"""The share of the file that is kept for replies."""
RESUME = 0.15
"""The share that must be free before other lanes are taken again."""
ROW_BYTES = 600
"""What a row has beside its payload, or less."""
STEP_S = 0.1
"""While there is other work, no more than one step of what is forgotten is done in so long: each is a transaction."""
RETRIED = 32
"""How much of what was held is tried at once: all of it need not fit."""

_log = logging.getLogger("fogline.outbox")


class Writer:
    """`connection` is used by this thread alone once it runs. `statement_s`: how often counts are stated.

    `lets_go`: the lanes whose oldest events are dropped when the file is nearly full. `expires`: the lanes whose expired
    events are dropped. `in_flight`: how many events of a stream may be on their way at once. `may_wait`: whether an error
    only says that there is no room. `handed`: by stream, the highest sequence that the uplink was given in this run.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        tenant: str,
        gateway: str,
        max_bytes: int,
        lets_go: frozenset[Lane] = frozenset(),
        expires: frozenset[Lane] = frozenset(),
        in_flight: int,
        statement_s: float,
        told: Told,
        may_wait: Callable[[sqlite3.Error], bool],
        clock: Clock = SYSTEM,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.handed: dict[str, int] = {}
        self.age = Age(connection, clock)
        self._started_s = self.age.s
        self.identity = (tenant, gateway)
        self._forgetting = Forgetting(connection, max_bytes, clock)
        self._max_pages = max_bytes // PAGE_BYTES
        self.expires = expires
        self._lets_go = lets_go
        self._in_flight = in_flight
        self._statement_s = statement_s
        self._told = told
        self.may_wait = may_wait
        self._queue: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._held: list[Waiting | Act] = []
        self._unsettled = Settlement()
        self._full = False
        self._next_statement = time.monotonic() + statement_s
        self._next_housekeeping = 0.0
        self._next_step = 0.0
        self._nudged = False
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
        self.streams = Streams(self.connection, self._in_flight)
        self.ingest = Ingest(self.connection, self.streams, *self.identity, self.clock, started_s=self._started_s)
        self.quarantine = Quarantine(self.connection, self._max_pages * PAGE_BYTES)

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
            if failure is None and not self._full:
                self.streams.save_filtered()
            self._told.closing(failure)
        finally:
            self.connection.close()

    def _do(self, work: Work) -> None:
        match work:
            case Settlement():
                self._settle(work)
            case Nudge():
                self._nudged = False
                self._settle(Settlement())
            case Call(run, done, failed):
                try:
                    result = run(self)
                except sqlite3.OperationalError as error:
                    self._wait_for_room(error)
                    failed(Unreachable("the outbox has no room for this at present"))
                except (sqlite3.Error, MemoryError):
                    raise
                except Exception as error:  # noqa: BLE001 - the caller's own: its transaction was rolled back, and others go on
                    failed(error)
                else:
                    done(result)
            case list():
                self._store(work)
        forgotten = self._housekeep()
        if self._full and self._lets_go and not forgotten:
            self._relieve()

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
                self._make_room(group)
                results = self.ingest.store(group, self.age.ms)
                self._state_counts()
                self._spare_reserve(group)
                crash_point(CrashPoint.BEFORE_COMMIT)
        except sqlite3.OperationalError as error:
            self._store_some(group, error)
            return
        except (sqlite3.Error, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - one that cannot be stored must not stop the others
            self._store_others(group, error)
            return
        self.ingest.committed()
        crash_point(CrashPoint.AFTER_COMMIT_BEFORE_ACK)
        self._told.committed(list(zip(group, results, strict=True)))

    def _spare_reserve(self, group: list[Waiting | Act]) -> None:
        """Within a transaction: what may not use the reserve must not have. Raises as SQLite does for want of room."""
        if used_pages(self.connection) > self._max_pages * (1 - RESERVE) and not all(map(uses_reserve, group)):
            error = sqlite3.OperationalError("the rest is kept for replies")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def _store_some(self, group: list[Waiting | Act], error: sqlite3.OperationalError) -> None:
        """All of it did not fit: as much as does is stored, the rest is held. Raises `error` if it says anything else."""
        if len(group) > 1 and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            self._store(group[: len(group) // 2])
            self._store(group[len(group) // 2 :])
            return
        self._wait_for_room(error)
        if all(map(uses_reserve, group)):
            self._held += group
        else:
            self._store(group)  # that is, what of it may use the reserve

    def _store_others(self, group: list[Waiting | Act], error: Exception) -> None:
        """One of a group cannot be stored: the others are; of an arrival its dead letter is. Raises `error` if that fails."""
        if len(group) > 1:
            self._store(group[: len(group) // 2])
            self._store(group[len(group) // 2 :])
            return
        (work,) = group
        _log.error("%s cannot be stored", work.run if isinstance(work, Act) else "an event", exc_info=error)
        if isinstance(work, Act):
            self._told.committed([(work, FAILED)])
        elif work.arrival.type == DEAD_TYPE:
            raise error
        else:
            self._store([Waiting(self._dead_letter(work.arrival, error), work.when, work.done)])

    def _dead_letter(self, arrival: Arrival, error: Exception) -> Arrival:
        poison, (_, gateway) = Poison("unstorable", f"it cannot be stored: {error!r}"), self.identity
        return dead_letter(
            poison,
            gateway=gateway,
            adapter=arrival.adapter,
            sender=arrival.device,
            channel=arrival.channel,
            data=arrival.data,
            retransmission=None,
        )

    def _make_room(self, group: list[Waiting | Act]) -> None:
        """Within a transaction, if the file is nearly full: let go of more than what comes."""
        if self._lets_go and used_pages(self.connection) > self._max_pages * (1 - RESUME):
            arrivals = [each.arrival for each in group if isinstance(each, Waiting)]
            dropping.drop(self, self._lets_go, 2 * sum(len(each.data) * 4 // 3 + ROW_BYTES for each in arrivals))

    def _relieve(self) -> None:
        """It is full, and lanes let go: some goes now, more at the next turn. A disk that is full itself is waited for."""
        try:
            with self.transaction():
                dropped = dropping.drop(self, self._lets_go, self._max_pages * PAGE_BYTES // 20)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        if dropped:
            self._nudge()

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
                self.streams.save_filtered()
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
        if stream.dropped.upto:
            self.connection.execute(SQL["drop_passed"], (stream.number, upto))
            stream.counts.dropped -= stream.dropped.settle(stream.settled, upto)
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
        if not self.may_wait(error):
            raise error
        self._set_full(True)

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        if full != self._full:
            self._full = full
            if full:
                self._next_housekeeping = 0.0
                self._forgetting.hurry()
            _log.warning("the outbox is full: devices wait" if full else "the outbox has room again")
            self._told.full(full)

    def _state_counts(self) -> bool:
        """Within a transaction: if it is time, append a statement to every open stream whose counts changed.

        Returns whether there was one.
        """
        if time.monotonic() < self._next_statement:
            return False
        self._next_statement = time.monotonic() + self._statement_s
        group = Group(self.age.ms)
        for stream in self.streams.opened():
            if stream.arrivals != stream.stated:
                self.ingest.state(group, stream, moment(self.clock))
        self.ingest.write(group)
        return bool(group.touched)

    # --- beside the work

    def _correct_times(self) -> None:
        try:
            with self.transaction():
                more = times.correct(self)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        if more:
            self._nudge()

    def _housekeep(self) -> int:
        """Forget what is too old, save the age, correct times once the clock is set. Returns how much was forgotten."""
        forgotten = self._forget()
        if not self._full and self.ingest.unsynced and moment(self.clock).synced:
            self._correct_times()
        return forgotten

    def _forget(self) -> int:
        """Also while it is full: it makes room."""
        self._forgetting.grown(*self.ingest.growth())
        now_s = time.monotonic()
        patient = not (self._queue.empty() or now_s >= self._next_step or self._full or self._forgetting.behind)
        more = self._forgetting.more or self.quarantine.over
        if now_s < self._next_housekeeping and (patient or not more):
            return 0
        self._next_housekeeping, self._next_step = now_s + SAVED_EVERY_S, now_s + STEP_S
        try:
            with self.transaction():
                self.age.save()
                forgotten = self._forgetting.go_on(self.age.s) + self.quarantine.trim(self)
        except sqlite3.OperationalError as error:
            self._forgetting.hurry()
            self._wait_for_room(error)
            return 0
        if self._forgetting.more or self.quarantine.over or (forgotten and self._full):
            self._nudge()
        return forgotten

    def _nudge(self) -> None:
        """Come back to it, once, after what waits by now."""
        if not self._nudged:
            self._nudged = True
            self._queue.put(Nudge())


def uses_reserve(work: Waiting | Act) -> bool:
    """Whether this is taken even when the file is full: replies, and what makes or frees a little room."""
    return isinstance(work, Act) or work.arrival.lane is Lane.REPLY


def utc_now() -> str:
    """The wall clock as text, for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")
