"""Room in the outbox's file: its bound, the reserve for replies, and the rows that are deleted or dropped to make room."""

import logging
import sqlite3
import time
from collections.abc import Callable

from fogline.events.event import Lane
from fogline_edge.outbox.file.free_space import disk_is_full, used_pages
from fogline_edge.outbox.file.full_record import FullCause, FullRecord
from fogline_edge.outbox.file.pages import PAGE_BYTES
from fogline_edge.outbox.writer import drop_oldest
from fogline_edge.outbox.writer.ingest import Act, Waiting
from fogline_edge.outbox.writer.store import PURGED_ROWS, OutboxStore

RESERVE = 0.10
"""The share of the file that is kept for replies."""
RESUME = 0.15
"""The share that must be free before other lanes are taken again."""
ROW_BYTES = 600  # the least that a row takes beside its payload
PURGE_S = 5.0  # between deletions of few accepted rows: each rewrites some pages

_log = logging.getLogger("fogline.outbox")


class FileRoom:
    """The policy of a full file. Used on the writer's thread.

    `full`: a change found no room, and only items that may use the reserve are stored. `drops_oldest`: the lanes whose oldest
    events are dropped when the file is nearly full. `on_full`: called with each new value of `full`. `record`: for operators.
    """

    def __init__(
        self, store: OutboxStore, drops_oldest: frozenset[Lane], on_full: Callable[[bool], None], record: FullRecord
    ) -> None:
        self.full = False
        self._store = store
        self._record = record
        self._drops_oldest = drops_oldest
        self._on_full = on_full
        self._max_pages = store.max_bytes // PAGE_BYTES
        self._next_purge = 0.0

    @property
    def _nearly_full(self) -> bool:
        return used_pages(self._store.connection) > self._max_pages * (1 - RESUME)

    def wait(self, error: sqlite3.OperationalError) -> None:
        """Mark the outbox as full; the caller's change is retried later. Raises `error` if it has another cause than room."""
        if not self._store.may_wait(error):
            raise error
        if not self._record.lasts:
            self._note_full()
        self._set_full(True)

    def regained(self) -> bool:
        """Return True if the outbox was full and has room again."""
        if not self.full or self._nearly_full:
            return False
        self._set_full(False)
        return True

    def _set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        if full != self.full:
            self.full = full
            self._on_full(full)

    def _note_full(self) -> None:
        used = used_pages(self._store.connection) * PAGE_BYTES
        wanted = 0 if self._nearly_full else self._store.max_bytes - used
        cause = FullCause.DISK if disk_is_full(self._record.folder, wanted) else FullCause.BOUND
        _log.warning("the outbox is full: devices wait: %s", self._record.begin(cause, used), extra={"reason": cause.value})

    def note_room(self) -> None:
        """Note that there is room, after the items that waited for it were tried again: a full disk has shown by now."""
        if self._record.lasts and not self.full:
            _log.warning("the outbox has room again, after %.0f s", self._record.end())

    def spare_reserve(self, group: list[Waiting | Act]) -> None:
        """Within a transaction: raise SQLite's error for a full file if a group that may not use the reserve has used it."""
        if used_pages(self._store.connection) > self._max_pages * (1 - RESERVE) and not all(map(uses_reserve, group)):
            error = sqlite3.OperationalError("the rest is kept for replies")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    def make_room(self, group: list[Waiting | Act]) -> None:
        """Within a transaction: if the file is nearly full, delete accepted rows, then drop more bytes than the group adds."""
        while self._nearly_full and self._store.purgeable:
            self._store.purge()
        if self._drops_oldest and self._nearly_full:
            arrivals = [each.arrival for each in group if isinstance(each, Waiting)]
            drop_oldest.drop(self._store, self._drops_oldest, 2 * sum(len(each.data) * 4 // 3 + ROW_BYTES for each in arrivals))

    def relieve(self) -> bool:
        """Drop some events if the file is full. Returns True if some were dropped. If the disk itself is full, wait."""
        if not self.full or not self._drops_oldest:
            return False
        try:
            with self._store.transaction():
                return drop_oldest.drop(self._store, self._drops_oldest, self._store.max_bytes // 20) > 0
        except sqlite3.OperationalError as error:
            self.wait(error)
            return False

    @property
    def purge_due(self) -> bool:
        """There are many accepted rows to delete, or it is time, or the file needs the room."""
        rows = self._store.purgeable
        return rows >= PURGED_ROWS or (rows > 0 and (time.monotonic() >= self._next_purge or self._nearly_full))

    def purge_some(self) -> None:
        """Within a transaction: delete some accepted rows if it is time. It is time until all are deleted."""
        if self.purge_due:
            self._store.purge()
            self._next_purge = 0.0 if self._store.purgeable else time.monotonic() + PURGE_S

    def purge_all(self, *, save: bool = False) -> None:
        """Delete the rows that the bridge has accepted, in steps. `save`: write the state of the streams too."""
        try:
            while self._store.purgeable or save:
                with self._store.transaction():
                    self._store.purge()
                    if save:
                        self._store.save()
                save = False
        except sqlite3.OperationalError as error:
            self.wait(error)


def uses_reserve(item: Waiting | Act) -> bool:
    """Return True if the item is stored even when the file is full: a reply, or an act that writes little."""
    return item.reserve if isinstance(item, Act) else item.arrival.lane is Lane.REPLY
