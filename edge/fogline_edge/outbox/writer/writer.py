"""The thread that owns the database. It waits for queue items, never polls, and acknowledges nothing before the commit.

A group of arrivals is one transaction. If the database is full, the writer keeps the group and retries it when the bridge has
accepted rows or the disk has room. Any other failure of the file is fatal: an fsync is never retried, because after a failed
one nobody knows what the disk holds.
"""

import logging
import queue
import sqlite3
import threading

from fogline.errors import Unreachable
from fogline.events.event import Lane
from fogline_edge.outbox.file.full_record import FullRecord
from fogline_edge.outbox.writer.file_room import FileRoom
from fogline_edge.outbox.writer.group_commit import GroupCommitter
from fogline_edge.outbox.writer.housekeeping import Housekeeping, Statements
from fogline_edge.outbox.writer.store import OutboxStore
from fogline_edge.outbox.writer.writer_queue import Call, MoreWork, Settlement, WorkItem, WriterCallbacks

_log = logging.getLogger("fogline.outbox")


class Writer:
    """Runs the items of its queue on one thread.

    `store`: used by this thread alone once it runs. `drops_oldest`: the lanes whose oldest events are dropped when the file is
    nearly full. `statement_s`: the interval of statements of counts, in seconds. `record`: of the times without room.
    """

    def __init__(
        self,
        store: OutboxStore,
        callbacks: WriterCallbacks,
        *,
        drops_oldest: frozenset[Lane] = frozenset(),
        statement_s: float,
        record: FullRecord,
    ) -> None:
        self._store = store
        self._callbacks = callbacks
        self._room = FileRoom(store, drops_oldest, self._report_full, record)
        self._statements = Statements(store, statement_s)
        self._committer = GroupCommitter(store, self._room, self._statements)
        self._housekeeping = Housekeeping(store, self._room, self._continue_later)
        self._queue: queue.SimpleQueue[WorkItem] = queue.SimpleQueue()
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
            _log.exception("the outbox's writer failed", extra={"reason": "outbox-failed"})
            self._callbacks.fatal(f"the outbox failed: {error}")
            failure = error
        try:
            if failure is None and not self._room.full:
                self._room.purge_all(save=True)
            self._callbacks.closing(failure)
        finally:
            self._store.connection.close()
            if self._store.history is not None:
                self._store.history.close()

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
                self._committer.commit(item)
        if self._store.commands:
            self._callbacks.commanded(self._store.commands[:])
            self._store.commands.clear()
        if self._store.messages:
            self._callbacks.messaged(self._store.messages[:])
            self._store.messages.clear()
        results, rows, groups = self._committer.take_results(), self._store.new_rows(), int(isinstance(item, list))
        if results or rows or groups:
            self._callbacks.committed(results, rows, groups)
        forgotten = self._housekeeping.run(idle=self._queue.empty())
        if not forgotten and self._room.relieve():
            self._continue_later()
        self._room.note_room()

    def _call(self, call: Call) -> None:
        try:
            result = call.run(self._store)
        except sqlite3.OperationalError as error:
            self._room.wait(error)
            call.failed(Unreachable("the outbox has no room for this at present"))
        except (sqlite3.Error, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - the caller's own error: its transaction was rolled back, and the outbox is sound
            call.failed(error)
        else:
            call.done(result)

    def _settle(self, settlement: Settlement) -> None:
        for name, events in settlement.sent.items():
            self._store.count_sent(name, events)
        for name, sequence in settlement.upto.items():
            self._store.accept(name, sequence)
        if self._room.full:
            self._room.purge_all()
        elif self._room.purge_due or self._statements.due:
            self._write_settlement()
        self._committer.retry_held()

    def _write_settlement(self) -> None:
        """Delete accepted rows and state the counts, if either is due."""
        try:
            with self._store.transaction():
                self._room.purge_some()
                self._statements.append()
        except sqlite3.OperationalError as error:
            self._room.wait(error)
            return
        self._store.ingest.committed()
        if self._room.purge_due:
            self._continue_later()

    def _report_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        if full:
            self._housekeeping.hurry()
        self._callbacks.full(full)

    def _continue_later(self) -> None:
        """Queue one `MoreWork` behind the items that wait now."""
        if not self._more_work_queued:
            self._more_work_queued = True
            self._queue.put(MoreWork())
