"""Periodic work of the writer: statements of counts, expiry of memory, the gateway's age, and corrected times."""

import sqlite3
import time
from collections.abc import Callable

from fogline_edge.machine.boot import moment
from fogline_edge.outbox.file.age import SAVED_EVERY_S
from fogline_edge.outbox.memory.memory_expiry import MemoryExpiry
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.writer import clock_correction
from fogline_edge.outbox.writer.file_room import FileRoom
from fogline_edge.outbox.writer.store import OutboxStore

PRESENCE_S = 900.0
"""Interval of statements of a gateway that got no events: without one, nobody knows whether it holds any."""
STEP_S = 0.1
"""Shortest time between two steps of memory expiry while the queue is not empty: each step is a transaction."""


class Statements:
    """Statements of counts, which each stream gets every `interval_s` if it has grown, and one of them every `PRESENCE_S`.

    Used on the writer's thread.
    """

    def __init__(self, store: OutboxStore, interval_s: float) -> None:
        self._store = store
        self._interval_s = interval_s
        self._next_s = time.monotonic() + interval_s
        self._presence_s = time.monotonic() + PRESENCE_S

    @property
    def due(self) -> bool:
        """True if it is time for statements."""
        return time.monotonic() >= self._next_s

    def append(self) -> None:
        """Within a transaction: if it is time, append due statements of counts."""
        if not self.due:
            return
        now_s = time.monotonic()
        self._next_s = now_s + self._interval_s
        group = Group(self._store.age.ms)
        opened = self._store.streams.opened()
        grown = [each for each in opened if each.arrivals != each.stated]
        for stream in grown or (opened[:1] if now_s >= self._presence_s else []):
            self._store.ingest.append_statement(group, stream, moment(self._store.clock))
            self._presence_s = now_s + PRESENCE_S
        self._store.ingest.write(group)


class Housekeeping:
    """Work that makes room or waits for the clock. Used on the writer's thread, after each item of its queue.

    `continue_later`: called if one step leaves more to do.
    """

    def __init__(self, store: OutboxStore, room: FileRoom, continue_later: Callable[[], None]) -> None:
        self._store = store
        self._room = room
        self._continue_later = continue_later
        self._memory_expiry = MemoryExpiry(store.connection, store.max_bytes, store.clock)
        self._next_s = self._next_step_s = 0.0

    def hurry(self) -> None:
        """Make all expiry due now, because the file is full."""
        self._next_s = 0.0
        self._memory_expiry.hurry()

    def run(self, *, idle: bool) -> int:
        """Expire memory, save the age, correct times once the clock is set. Returns the number of deleted rows.

        `idle`: the writer's queue is empty.
        """
        forgotten = self._forget(idle=idle)
        if not self._room.full and self._store.ingest.unsynced and moment(self._store.clock).synced:
            self._correct_times()
        return forgotten

    def _correct_times(self) -> None:
        try:
            with self._store.transaction():
                more = clock_correction.correct(self._store)
        except sqlite3.OperationalError as error:
            self._room.wait(error)
            return
        if more:
            self._continue_later()

    def _forget(self, *, idle: bool) -> int:
        """Expire memory and trim the quarantine. This also runs while the outbox is full, because it makes room."""
        self._memory_expiry.grown(self._store.ingest.duplicates.growth())
        now_s = time.monotonic()
        patient = not (idle or now_s >= self._next_step_s or self._room.full or self._memory_expiry.behind)
        more = self._memory_expiry.more or self._store.quarantine.over
        if now_s < self._next_s and (patient or not more):
            return 0
        self._next_s, self._next_step_s = now_s + SAVED_EVERY_S, now_s + STEP_S
        try:
            with self._store.transaction():
                self._store.age.save()
                forgotten = self._memory_expiry.step(self._store.age.s) + self._store.quarantine.trim()
        except sqlite3.OperationalError as error:
            self._memory_expiry.hurry()
            self._room.wait(error)
            return 0
        if self._memory_expiry.more or self._store.quarantine.over or (forgotten and self._room.full):
            self._continue_later()
        return forgotten
