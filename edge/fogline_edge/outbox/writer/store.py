"""The outbox's database on the writer's thread: the connection, its transactions, and the state that mirrors the rows."""

import contextlib
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from fogline.commands.command import Command
from fogline.errors import Poison
from fogline.events.event import Lane
from fogline.tracing.spans import ExportSpans
from fogline_edge.history.history_file import HistoryFile
from fogline_edge.machine.boot import SYSTEM, Clock
from fogline_edge.outbox.file.age import Age
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.memory.resend_memory import ResendMemory
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.rows.streams import EventRecord, Stream, Streams, event_place
from fogline_edge.outbox.writer.ingest import CommitTap, Ingest
from fogline_edge.outbox.writer.quarantine import GapRecords, Quarantine
from fogline_edge.outbox.writer.reactor import Reactor
from fogline_edge.rules.event_rules import rules_of
from fogline_edge.rules.message import RuleMessage
from fogline_edge.settings import EdgeSettings

PURGED_ROWS, PURGED_BYTES = 1000, 1024 * 1024  # that one step of `purge` deletes, but for one row of any size


class OutboxStore:
    """Everything that a change of the file needs. Used on one thread.

    Raises `Misconfigured` for rules that cannot be used. `drops_expired`: the lanes whose expired events are dropped.
    `may_wait`: returns True for an error that only means that there is no room. `handed`: by stream, the highest sequence that
    the uplink has read in this run. `live`: by stream, the last row that the uplink has or gets by `new_rows`, for a stream
    that it has read to the end. `commands`, `messages`: those of rules, committed and not yet handed over. `export`: takes the
    spans of committed events. `history`: takes the events that rules keep back, if it is given.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        settings: EdgeSettings,
        *,
        may_wait: Callable[[sqlite3.Error], bool],
        clock: Clock = SYSTEM,
        export: ExportSpans | None = None,
        history: HistoryFile | None = None,
    ) -> None:
        self.connection = connection
        self.identity = (settings.tenant, settings.gateway)
        self.max_bytes = settings.outbox.max_bytes
        self.drops_expired: frozenset[Lane] = settings.outbox.drops_expired
        self.may_wait = may_wait
        self.clock = clock
        self.age = Age(connection, clock)
        self.gap_records = GapRecords(self.identity, clock)
        self.handed: dict[str, int] = {}
        self.live: dict[str, int] = {}
        self._announced: dict[str, int] = {}
        self._accepted: dict[str, int] = {}
        self._unsaved_sent: Counter[str] = Counter()
        self._in_flight = settings.uplink.batch_events * settings.uplink.batches_in_flight
        self._export = export
        self._rules = rules_of(settings.rules)
        self.commands: list[Command] = []
        self.messages: list[RuleMessage] = []
        self.history = history
        self._resends = ResendMemory(connection, self.max_bytes, self.age.s)
        self._resends.load([message for (message,) in connection.execute(SQL["unsaved_messages"])])
        self._tap = CommitTap()
        self._load()

    def _load(self) -> None:
        self.streams = Streams(self.connection, self._in_flight)
        self.ingest = Ingest(
            self.connection,
            self.streams,
            *self.identity,
            self.clock,
            resends=self._resends,
            export=self._export,
            rules=self._rules,
        )
        self.ingest.tap = self._tap
        if self._rules is not None and self._rules.react is not None:
            self.ingest.listener = Reactor(self.ingest, self._rules.react, self.commands.extend, self.messages.extend)
        if self.ingest.reducer is not None:
            self.ingest.reducer.history = self.history
        self.quarantine = Quarantine(self.connection, self.streams, self.gap_records, self.max_bytes)
        for name, upto in self._accepted.items():
            self.accept(name, upto)
        for name, events in self._unsaved_sent.items():
            self.streams.get(name).counts.sent += events

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the block durably, or roll it back if it raises.

        After a rollback `streams`, `ingest` and `quarantine` are new objects, read from the file again.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            saved = self.streams.due or self._resends.due
            if saved:
                self.save()
            self.connection.execute("COMMIT")
        except BaseException:  # cancellation and interrupts too: a transaction is never left half done
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._resends.rolled_back()
            if self._rules is not None:
                self._rules.rolled_back()
            self._load()
            raise
        self._resends.committed()
        if self._rules is not None:
            self._rules.committed()
        if saved:
            self._unsaved_sent.clear()

    def count_sent(self, name: str, events: int) -> None:
        """Count events of a stream that were sent. The count is saved with the next change of another kind."""
        self.streams.appended(stream := self.streams.get(name), 0)
        stream.counts.sent += events
        self._unsaved_sent[name] += events

    def save(self) -> None:
        """Within a transaction: write the state of the changed streams, and the messages of their new rows."""
        self._resends.save()
        self.streams.save()

    def accept(self, name: str, upto: int) -> None:
        """Note that the bridge has accepted the events of a stream up to `upto`. `purge` deletes their rows."""
        stream = self.streams.get(name)
        self._accepted[name] = upto = max(upto, self._accepted.get(name, 0))
        if upto <= stream.settled:
            return
        if stream.dropped.upto:
            stream.unpurged_gap = stream.dropped.upto
            undropped = stream.dropped.settle(stream.settled, upto)
            stream.counts.dropped -= undropped
            stream.undropped += undropped
        stream.counts.settled += upto - stream.settled
        stream.settled = upto
        stream.forget_tail(upto)

    def follow(self, stream: Stream) -> None:
        """Note that the uplink has all rows of a stream: `new_rows` returns those behind them."""
        self.live[stream.stream] = self._announced[stream.stream] = stream.head

    def new_rows(self) -> list[tuple[str, list[EventRecord] | None]]:
        """Return the rows behind those in `live` of each stream that has grown, or None if it is not live any more."""
        found: list[tuple[str, list[EventRecord] | None]] = []
        for name in {each.stream for each in self.streams.opened()} | self.live.keys():
            stream, upto = self.streams.get(name), self.live.get(name)
            if stream.head == self._announced.get(name):
                continue
            self._announced[name] = stream.head
            rows = stream.remembered(upto, stream.head - upto) if upto is not None else None
            if rows and rows[-1].sequence == stream.head:
                self.live[name] = self.handed[name] = stream.head
            else:
                self.live.pop(name, None)
                rows = None
            found.append((name, rows))
        return found

    @property
    def purgeable(self) -> int:
        """The number of rows that the bridge has accepted and that are not deleted yet."""
        return sum(each.settled - each.purged for each in map(self.streams.get, self._accepted))

    def purge(self) -> None:
        """Within a transaction: delete some accepted rows of each stream, and save its state."""
        for stream in map(self.streams.get, self._accepted):
            if stream.settled > stream.purged:
                self._purge(stream)

    def _purge(self, stream: Stream) -> None:
        first, last = event_place(stream.number, stream.purged + 1), event_place(stream.number, stream.settled)
        (rows, place) = self.connection.execute(SQL["purge_upto"], (first, last, PURGED_ROWS, PURGED_BYTES)).fetchone()
        upto = stream.settled if not rows or place == last else (place or first) - event_place(stream.number, 0)
        upto = max(upto, min(stream.settled, stream.unpurged_gap))
        commit_id = self.commit_id_at(stream, upto)
        self.delete_events(stream, upto)
        stream.purged, stream.purged_commit_id = upto, commit_id or b""
        stream.unpurged_gap = stream.undropped = 0
        self.streams.changed(stream)

    def events(self, stream: Stream, after: int, limit: int) -> Generator[EventRecord, None, None]:
        """Yield at most `limit` events of a stream above `after` from the file, in order.

        Raises `sqlite3.DatabaseError` for a body that only damage can give.
        """
        span = event_place(stream.number, after), event_place(stream.number + 1, 0)
        with contextlib.closing(self.connection.execute(SQL["read_events"], (*span, limit))) as found:
            for sequence, commit_id, stored in found:
                yield EventRecord(sequence, commit_id, _body(sequence, stored))

    def event(self, stream: Stream, sequence: int) -> EventRecord | None:
        """Return one event, or None if there is none. Raises as `events`."""
        return next(self.events(stream, sequence - 1, 1), None)

    def commit_id_at(self, stream: Stream, sequence: int) -> bytes | None:
        """Return the id of the commit that stored an event, or None if it is not known any more."""
        if sequence == stream.purged:
            return stream.purged_commit_id or None
        key = event_place(stream.number, sequence), stream.number, sequence
        row = self.connection.execute(SQL["commit_id_at"], key).fetchone()
        return row[0] if row else None

    def delete_events(self, stream: Stream, upto: int) -> None:
        """Within a transaction: delete the rows of a stream up to a sequence, and the notes about them."""
        self.connection.execute(SQL["delete_events"], (event_place(stream.number, 0), event_place(stream.number, upto)))
        self.connection.execute(SQL["drop_passed"], (stream.number, upto))
        if self.ingest.unsynced:
            self.connection.execute(SQL["drop_unsynced_settled"], (stream.number, upto))


def windows_due_ms(store: OutboxStore) -> float:
    """Return the gateway's age at which a window is due, in milliseconds; infinity for none. Any thread may call it."""
    return math.inf if store.ingest.reducer is None else store.ingest.reducer.windows.due_ms


def history_of(settings: EdgeSettings) -> HistoryFile | None:
    """Open the file of events that rules keep back, if a rule has `keep_days`."""
    if not any(each.keep_days is not None for each in settings.rules.reduce):
        return None
    return HistoryFile(Path(settings.data), settings.rules.history_max_bytes)


def _body(sequence: int, stored: object) -> bytes:
    try:
        return unpack_body(stored)
    except Poison as error:
        raise sqlite3.DatabaseError(f"the body of event {sequence}: {error}") from None
