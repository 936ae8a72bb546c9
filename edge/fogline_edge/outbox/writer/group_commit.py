"""Commits groups of arrivals and acts, each in one transaction. A group that finds no room is held and retried."""

import logging
import sqlite3

from fogline.dead_letter import DEAD_TYPE, dead_letter
from fogline.errors import Poison
from fogline.events.event import Arrival
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.outbox.writer.file_room import FileRoom, uses_reserve
from fogline_edge.outbox.writer.housekeeping import Statements
from fogline_edge.outbox.writer.ingest import Act, Waiting
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.outbox.writer.writer_queue import FAILED, Results

RETRIED = 32  # retried items per group: not all of the held items may fit

_log = logging.getLogger("fogline.outbox")


class GroupCommitter:
    """Commits groups, and holds the items that wait for room. Used on the writer's thread."""

    def __init__(self, store: OutboxStore, room: FileRoom, statements: Statements) -> None:
        self._store = store
        self._room = room
        self._statements = statements
        self._held: list[Waiting | Act] = []
        self._results: Results = []

    def take_results(self) -> Results:
        """Return the items that were committed since the last call, with their results."""
        results, self._results = self._results, []
        return results

    def commit(self, group: list[Waiting | Act]) -> None:
        """Store a group, or as much of it as fits, and hold the rest."""
        if self._room.full:
            group = self._reserved(group)
        if not group:
            return
        events = any(isinstance(each, Waiting) or not each.reserve for each in group)  # what an adapter keeps may commit alone
        try:
            with self._store.transaction():
                self._room.purge_some()
                self._room.make_room(group)
                results = self._store.ingest.store(group, self._store.age.ms)
                self._statements.append()
                self._room.spare_reserve(group)
                if events:
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
        if events:
            crash_point(CrashPoint.AFTER_COMMIT_BEFORE_ACK)
        self._results += zip(group, results, strict=True)

    def retry_held(self) -> None:
        """Commit the held items if the file has room again."""
        if self._room.regained():
            held, self._held = self._held, []
            for first in range(0, len(held), RETRIED):
                self.commit(held[first : first + RETRIED])

    def _store_some(self, group: list[Waiting | Act], error: sqlite3.OperationalError) -> None:
        """The group did not fit: store as much of it as fits and hold the rest. Raises `error` if it has another cause."""
        if len(group) > 1 and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            self._commit_halves(group)
            return
        self._room.wait(error)
        if all(map(uses_reserve, group)):
            self._held += group
        else:
            self.commit(group)  # stores the items that may use the reserve, and holds the others

    def _store_others(self, group: list[Waiting | Act], error: Exception) -> None:
        """One item cannot be stored: store the others, and a dead letter for an arrival. Raises `error` if that fails too."""
        if len(group) > 1:
            self._commit_halves(group)
            return
        (item,) = group
        _log.error("%s cannot be stored", item.run if isinstance(item, Act) else "an event", exc_info=error)
        if isinstance(item, Act):
            self._results.append((item, FAILED))
        elif item.arrival.type == DEAD_TYPE:
            raise error
        else:
            self.commit([Waiting(self._dead_letter(item.arrival, error), item.when, item.done)])

    def _commit_halves(self, group: list[Waiting | Act]) -> None:
        self.commit(group[: len(group) // 2])
        self.commit(group[len(group) // 2 :])

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

    def _reserved(self, group: list[Waiting | Act]) -> list[Waiting | Act]:
        """Return the items of a group that may use the reserve, and hold the others. No reply overtakes a held one."""
        taken = [] if any(map(uses_reserve, self._held)) else [each for each in group if uses_reserve(each)]
        self._held += [each for each in group if not uses_reserve(each)] if taken else group
        return taken
