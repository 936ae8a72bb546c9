"""The thread that owns the database. It waits for queue items, never polls, and acknowledges nothing before the commit.

A group of arrivals is one transaction. If the database is full, the writer keeps the group and retries it when the bridge has
accepted rows or the disk has room. Any other failure of the file is fatal: an fsync is never retried, because after a failed
one nobody knows what the disk holds.
"""

import logging
import queue
import sqlite3
import threading
import time

from fogline.dead_letter import DEAD_TYPE, dead_letter
from fogline.errors import Poison, Unreachable
from fogline.event import Arrival, Lane
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.boot import moment
from fogline_edge.outbox import clock_correction, drop_oldest
from fogline_edge.outbox.age import SAVED_EVERY_S
from fogline_edge.outbox.free_space import page_bytes, used_pages
from fogline_edge.outbox.group import Group
from fogline_edge.outbox.ingest import Act, Waiting
from fogline_edge.outbox.memory_expiry import MemoryExpiry
from fogline_edge.outbox.store import PURGED_ROWS, OutboxStore
from fogline_edge.outbox.writer_queue import FAILED, Call, MoreWork, Results, Settlement, WorkItem, WriterCallbacks

RESERVE = 0.10
"""The share of the file that is kept for replies."""
RESUME = 0.15
"""The share that must be free before other lanes are taken again."""
ROW_BYTES = 600  # the least that a row takes beside its payload
PURGE_S = 5.0  # between deletions of few accepted rows: each rewrites some pages
STEP_S = 0.1
"""Shortest time between two steps of memory expiry while the queue is not empty: each step is a transaction."""
RETRIED = 32  # retried items per group: not all of the held items may fit

_log = logging.getLogger("fogline.outbox")


class Writer:
    """Runs the items of its queue on one thread.

    `store`: used by this thread alone once it runs. `drops_oldest`: the lanes whose oldest events are dropped when the file is
    nearly full. `statement_s`: the interval of statements of counts, in seconds.
    """

    def __init__(
        self, store: OutboxStore, callbacks: WriterCallbacks, *, drops_oldest: frozenset[Lane] = frozenset(), statement_s: float
    ) -> None:
        self._store = store
        self._callbacks = callbacks
        self._memory_expiry = MemoryExpiry(store.connection, store.max_bytes, store.clock)
        self._max_pages = store.max_bytes // page_bytes(store.connection)
        self._drops_oldest = drops_oldest
        self._statement_s = statement_s
        self._queue: queue.SimpleQueue[WorkItem] = queue.SimpleQueue()
        self._held: list[Waiting | Act] = []
        self._results: Results = []
        self._full = False
        self._next_statement = time.monotonic() + statement_s
        self._next_housekeeping = 0.0
        self._next_step = 0.0
        self._next_purge = 0.0
        self._more_work_queued = False
        self._thread = threading.Thread(target=self._run, name="outbox-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, item: WorkItem) -> None:
        """Queue an item. Any thread may use it. `None` ends the thread after the items queued before."""
        self._queue.put(item)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    # --- on the thread

    def _run(self) -> None:
        failure = None
        try:
            while (item := self._queue.get()) is not None:
                self._do(item)
        except Exception as error:  # noqa: BLE001 - after any error nothing more may be acknowledged: the process ends
            _log.exception("the outbox's writer failed")
            self._callbacks.fatal(f"the outbox failed: {error}")
            failure = error
        try:
            if failure is None and not self._full:
                self._purge_all(save=True)
            self._callbacks.closing(failure)
        finally:
            self._store.connection.close()

    def _do(self, item: WorkItem) -> None:
        match item:
            case Settlement():
                self._settle(item)
            case MoreWork():
                self._more_work_queued = False
                self._settle(Settlement())
            case Call():
                self._call(item)
            case list():
                self._commit(item)
        results, self._results = self._results, []
        rows, groups = self._store.new_rows(), int(isinstance(item, list))
        if results or rows or groups:
            self._callbacks.committed(results, rows, groups)
        forgotten = self._housekeep()
        if self._full and self._drops_oldest and not forgotten:
            self._relieve()

    def _call(self, call: Call) -> None:
        try:
            result = call.run(self._store)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            call.failed(Unreachable("the outbox has no room for this at present"))
        except (sqlite3.Error, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - the caller's own error: its transaction was rolled back, and the outbox is sound
            call.failed(error)
        else:
            call.done(result)

    def _commit(self, group: list[Waiting | Act]) -> None:
        if self._full:
            group = self._reserved(group)
        if not group:
            return
        arrivals = any(isinstance(each, Waiting) for each in group)  # what an adapter keeps may commit alone
        try:
            with self._store.transaction():
                self._purge_some()
                self._make_room(group)
                results = self._store.ingest.store(group, self._store.age.ms)
                self._state_counts()
                self._spare_reserve(group)
                if arrivals:
                    crash_point(CrashPoint.BEFORE_COMMIT)
        except sqlite3.OperationalError as error:
            self._store_some(group, error)
            return
        except (sqlite3.Error, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - one item that cannot be stored must not stop the others
            self._store_others(group, error)
            return
        self._store.ingest.committed()
        if arrivals:
            crash_point(CrashPoint.AFTER_COMMIT_BEFORE_ACK)
        self._results += zip(group, results, strict=True)

    def _spare_reserve(self, group: list[Waiting | Act]) -> None:
        """Within a transaction: raise SQLite's error for a full file if a group that may not use the reserve has used it."""
        if used_pages(self._store.connection) > self._max_pages * (1 - RESERVE) and not all(map(uses_reserve, group)):
            error = sqlite3.OperationalError("the rest is kept for replies")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def _store_some(self, group: list[Waiting | Act], error: sqlite3.OperationalError) -> None:
        """The group did not fit: store as much of it as fits and hold the rest. Raises `error` if it has another cause."""
        if len(group) > 1 and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            self._commit(group[: len(group) // 2])
            self._commit(group[len(group) // 2 :])
            return
        self._wait_for_room(error)
        if all(map(uses_reserve, group)):
            self._held += group
        else:
            self._commit(group)  # stores the items that may use the reserve, and holds the others

    def _store_others(self, group: list[Waiting | Act], error: Exception) -> None:
        """One item cannot be stored: store the others, and a dead letter for an arrival. Raises `error` if that fails too."""
        if len(group) > 1:
            self._commit(group[: len(group) // 2])
            self._commit(group[len(group) // 2 :])
            return
        (item,) = group
        _log.error("%s cannot be stored", item.run if isinstance(item, Act) else "an event", exc_info=error)
        if isinstance(item, Act):
            self._results.append((item, FAILED))
        elif item.arrival.type == DEAD_TYPE:
            raise error
        else:
            self._commit([Waiting(self._dead_letter(item.arrival, error), item.when, item.done)])

    def _dead_letter(self, arrival: Arrival, error: Exception) -> Arrival:
        poison, (_, gateway) = Poison("unstorable", f"it cannot be stored: {error!r}"), self._store.identity
        return dead_letter(
            poison,
            gateway=gateway,
            adapter=arrival.adapter,
            sender=arrival.device,
            channel=arrival.channel,
            data=arrival.data,
            retransmission=None,
        )

    @property
    def _nearly_full(self) -> bool:
        return used_pages(self._store.connection) > self._max_pages * (1 - RESUME)

    def _make_room(self, group: list[Waiting | Act]) -> None:
        """Within a transaction: if the file is nearly full, delete accepted rows, then drop more bytes than the group adds."""
        while self._nearly_full and self._store.purgeable:
            self._store.purge()
        if self._drops_oldest and self._nearly_full:
            arrivals = [each.arrival for each in group if isinstance(each, Waiting)]
            drop_oldest.drop(self._store, self._drops_oldest, 2 * sum(len(each.data) * 4 // 3 + ROW_BYTES for each in arrivals))

    def _relieve(self) -> None:
        """Drop some events because the file is full, and continue later. If the disk itself is full, wait."""
        try:
            with self._store.transaction():
                dropped = drop_oldest.drop(self._store, self._drops_oldest, self._store.max_bytes // 20)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        if dropped:
            self._continue_later()

    def _reserved(self, group: list[Waiting | Act]) -> list[Waiting | Act]:
        """Return the items of a group that may use the reserve, and hold the others. No reply overtakes a held one."""
        taken = [] if any(map(uses_reserve, self._held)) else [each for each in group if uses_reserve(each)]
        self._held += [each for each in group if not uses_reserve(each)] if taken else group
        return taken

    def _settle(self, settlement: Settlement) -> None:
        for name, events in settlement.sent.items():
            self._store.count_sent(name, events)
        for name, sequence in settlement.upto.items():
            self._store.accept(name, sequence)
        if self._full:
            self._purge_all()
        elif self._purge_due or time.monotonic() >= self._next_statement:
            self._write_settlement()
        self._retry_held()

    def _write_settlement(self) -> None:
        """Delete accepted rows and state the counts, if either is due."""
        try:
            with self._store.transaction():
                self._purge_some()
                self._state_counts()
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        self._store.ingest.committed()

    def _purge_all(self, *, save: bool = False) -> None:
        """Delete the rows that the bridge has accepted, in steps. `save`: write the state of the streams too."""
        try:
            while self._store.purgeable or save:
                with self._store.transaction():
                    self._store.purge()
                    if save:
                        self._store.save()
                save = False
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)

    @property
    def _purge_due(self) -> bool:
        """There are many rows to delete, or it is time, or the file needs the room."""
        rows = self._store.purgeable
        return rows >= PURGED_ROWS or (rows > 0 and (time.monotonic() >= self._next_purge or self._nearly_full))

    def _purge_some(self) -> None:
        """Within a transaction: delete some accepted rows if it is time."""
        if self._purge_due:
            self._next_purge = time.monotonic() + PURGE_S
            self._store.purge()

    def _retry_held(self) -> None:
        if self._full and not self._nearly_full:
            held, self._held = self._held, []
            self._set_full(False)
            for first in range(0, len(held), RETRIED):
                self._commit(held[first : first + RETRIED])

    def _wait_for_room(self, error: sqlite3.OperationalError) -> None:
        """Mark the outbox as full; the caller's change is retried later. Raises `error` if it has another cause than room."""
        if not self._store.may_wait(error):
            raise error
        self._set_full(True)

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        if full != self._full:
            self._full = full
            if full:
                self._next_housekeeping = 0.0
                self._memory_expiry.hurry()
            _log.warning("the outbox is full: devices wait" if full else "the outbox has room again")
            self._callbacks.full(full)

    def _state_counts(self) -> None:
        """Within a transaction: if it is time, append due statements of counts."""
        if time.monotonic() < self._next_statement:
            return
        self._next_statement = time.monotonic() + self._statement_s
        group = Group(self._store.age.ms)
        for stream in self._store.streams.opened():
            if stream.arrivals != stream.stated:
                self._store.ingest.append_statement(group, stream, moment(self._store.clock))
        self._store.ingest.write(group)

    # --- housekeeping

    def _correct_times(self) -> None:
        try:
            with self._store.transaction():
                more = clock_correction.correct(self._store)
        except sqlite3.OperationalError as error:
            self._wait_for_room(error)
            return
        if more:
            self._continue_later()

    def _housekeep(self) -> int:
        """Expire memory, save the age, correct times once the clock is set. Returns the number of deleted rows."""
        forgotten = self._forget()
        if not self._full and self._store.ingest.unsynced and moment(self._store.clock).synced:
            self._correct_times()
        return forgotten

    def _forget(self) -> int:
        """Expire memory and trim the quarantine. This also runs while the outbox is full, because it makes room."""
        self._memory_expiry.grown(self._store.ingest.duplicates.growth())
        now_s = time.monotonic()
        patient = not (self._queue.empty() or now_s >= self._next_step or self._full or self._memory_expiry.behind)
        more = self._memory_expiry.more or self._store.quarantine.over
        if now_s < self._next_housekeeping and (patient or not more):
            return 0
        self._next_housekeeping, self._next_step = now_s + SAVED_EVERY_S, now_s + STEP_S
        try:
            with self._store.transaction():
                self._store.age.save()
                forgotten = self._memory_expiry.step(self._store.age.s) + self._store.quarantine.trim()
        except sqlite3.OperationalError as error:
            self._memory_expiry.hurry()
            self._wait_for_room(error)
            return 0
        if self._memory_expiry.more or self._store.quarantine.over or (forgotten and self._full):
            self._continue_later()
        return forgotten

    def _continue_later(self) -> None:
        """Queue one `MoreWork` behind the items that wait now."""
        if not self._more_work_queued:
            self._more_work_queued = True
            self._queue.put(MoreWork())


def uses_reserve(item: Waiting | Act) -> bool:
    """Return True if the item is stored even when the file is full: a reply, or an act, which writes little."""
    return isinstance(item, Act) or item.arrival.lane is Lane.REPLY
