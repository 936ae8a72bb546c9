"""Turns one group of arrivals into rows within one transaction: recognise, number, insert, remember, count."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import msgspec

from fogline.dead_letter import DEAD_TYPE
from fogline.events.event import CONFLICTING, POSSIBLE_DUPLICATE, Arrival, Lane, Receipt
from fogline.events.identity import AckDelivery, Dedup, sequence_id
from fogline.events.large_body import BodyChunk, end_of_body, read_dataref, unfinished_key
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, RuleOutcome, Statement, count_rule, encode_statement
from fogline.process.crash_points import CrashPoint, crash_point
from fogline.tracing.spans import ExportSpans
from fogline_edge.event_spans import store_spans
from fogline_edge.machine.boot import SYSTEM, Clock, Moment, moment
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.memory.duplicate_filter import DuplicateFilter, naming
from fogline_edge.outbox.memory.recognition import NO_IDENTITY, KnownEvent, NewEvent
from fogline_edge.outbox.memory.resend_memory import ResendMemory
from fogline_edge.outbox.reduction.reducer import reducer_of
from fogline_edge.outbox.reduction.window_table import WindowTable
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.rows.streams import EventRecord, EventRow, Stream, Streams
from fogline_edge.outbox.writer.event_encoder import EventEncoder, has_rare_attributes
from fogline_edge.rules.event_rules import EventRules

ROWS_PER_STATEMENT = 32
_INSERT_MANY = SQL["insert_event"].rstrip(";") + ", (?, ?, ?, ?)" * (ROWS_PER_STATEMENT - 1)


@dataclass(slots=True)
class Waiting:
    """An arrival, the time at which it came, and the callback that gets its receipt after the commit."""

    arrival: Arrival
    when: Moment
    done: Callable[[Receipt], None]

    @property
    def size(self) -> int:
        """Size of the payload in bytes."""
        return len(self.arrival.data)


@dataclass(frozen=True, slots=True)
class Act:
    """A change of the file that commits with the group, in its order among the arrivals.

    `run` is called within the transaction; `done` gets its result after the commit. `size`: bytes that `run` holds in memory.
    `reserve`: it runs also if the file has only its reserve left, so it must write little.
    """

    run: Callable[["Ingest", Group], Any]
    done: Callable[[Any], None]
    size: int = 0
    reserve: bool = True


class IngestListener(Protocol):
    """Gets the events of a transaction as they are taken (`reactor`)."""

    def taken(self, group: Group, arrival: Arrival, event_id: str, when: Moment) -> None:
        """Take a new event, which was stored just now, or kept back by a rule."""

    def heard(self, group: Group, arrival: Arrival) -> None:
        """Take an arrival that repeats the last report of its channel."""

    def write(self) -> None:
        """Write what has changed, before the transaction ends."""

    def committed(self) -> None:
        """Take note that the transaction was committed."""


class CommitTap:
    """Takes the bodies of committed events, on the writer's thread, while it is set."""

    def __init__(self) -> None:
        self.call: Callable[[list[bytes]], None] | None = None

    def set(self, call: Callable[[list[bytes]], None] | None) -> None:
        """Set or remove the function that takes the bodies."""
        self.call = call


class Ingest:
    """Stores groups. Used on the writer's thread only.

    `identity`: tenant and gateway. `unsynced`: some rows may have times that need correction. `export`: takes the spans of
    committed events. `rules`: of the settings, if there are any. `listener`: gets the events that are stored. `reducer`: keeps
    events back.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        streams: Streams,
        tenant: str,
        gateway: str,
        clock: Clock = SYSTEM,
        *,
        resends: ResendMemory,
        export: ExportSpans | None = None,
        rules: EventRules | None = None,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.unsynced = bool(connection.execute(SQL["any_unsynced"]).fetchone()[0])
        self.identity = (tenant, gateway)
        self._streams = streams
        self.duplicates = DuplicateFilter(connection, tenant, resends)
        self._encoder = EventEncoder(tenant, gateway)
        self._written: list[tuple[Stream, list[EventRecord]]] = []
        self._export = export
        self._rules = rules
        self.tap = CommitTap()
        self.listener: IngestListener | None = None
        self._new_id = ""
        self._age_s = 0
        self.reducer = reducer_of(rules, WindowTable(connection, tenant, clock), streams, self.duplicates)

    def store(self, items: Sequence[Waiting | Act], age_ms: int) -> list[Any]:
        """Store a group within the open transaction. Returns one result per item; the result of an arrival is its receipt."""
        group = Group(age_ms)
        self._age_s = group.age_s
        results = [self.take(group, each) if isinstance(each, Waiting) else each.run(self, group) for each in items]
        self.write(group)
        return results

    def committed(self) -> None:
        """Keep the committed rows in memory for the uplink, and export their spans. Call it after the commit."""
        if self.listener is not None:
            self.listener.committed()
        written, self._written = self._written, []
        for stream, events in written:
            stream.keep(events)
        if self.tap.call is not None and written:
            self.tap.call([each.body for _, events in written for each in events])
        if self.reducer is not None:
            self.reducer.committed(self._age_s)
        if self._export is not None:
            committed_ns = self.clock.time_ns()
            self._export(store_spans((each.body for _, events in written for each in events), committed_ns))

    def count_rule(self, lane: Lane, rule: str, outcome: RuleOutcome) -> None:
        """Count an event of a lane by a rule."""
        self._streams.count_rule(self._streams.of_lane(lane), rule, outcome)

    def write(self, group: Group) -> None:
        """Write the rows that a group has collected."""
        if self.listener is not None:
            self.listener.write()
        streams = self._streams
        for stream in group.touched.values():
            events, rows = stream.take_unwritten()
            insert_many(self.connection, rows)
            self._written.append((stream, events))
            streams.appended(stream, len(rows))
        if group.unsynced:
            self.unsynced = True
            times = [(stream, *span, *msgspec.structs.astuple(beacon)) for (stream, beacon), span in group.unsynced.items()]
            self.connection.executemany(SQL["note_unsynced"], times)
        self.duplicates.write(group)
        if self.reducer is not None:
            self.reducer.windows.write()

    def close_windows(self, group: Group) -> None:
        """Append the events of some windows that are due."""
        if self.reducer is not None:
            self.reducer.close_due(group, moment(self.clock), self.append)

    def append_statement(self, group: Group, stream: Stream, when: Moment, *, closed: bool = False) -> None:
        """Append a statement of the stream's counts to the stream itself, which must be open. `closed`: it is the last one."""
        self._streams.changed(stream)
        stream.stated = stream.arrivals
        heads = {each.stream: each.head for each in self._streams.pending()}
        body = encode_statement(Statement(stream.stream, stream.lane.value, stream.counts, closed, heads))
        arrival = Arrival(
            device=self.identity[1],
            channel="ledger",
            lane=stream.lane,
            content_type=STATEMENT_CONTENT_TYPE,
            data=body,
            adapter="fogline",
            type="ledger",
        )
        self.append(group, arrival, when, NewEvent(None, Dedup.STRONG, ()))

    def take(self, group: Group, waiting: Waiting) -> Receipt:
        """Recognise an arrival as a duplicate, or append it to its lane's stream."""
        arrival, by_rule, self._new_id = waiting.arrival, False, ""
        if arrival.dataref is not None:
            return self._take_part(group, arrival, waiting.when)
        if self._rules is not None:
            arrival = self._rules.prepare(arrival, self.count_rule)
            by_rule = arrival.identity is not None
        receipt = self._take(group, arrival, waiting.when, by_rule=by_rule)
        if self.listener is not None:
            if self._new_id:
                self.listener.taken(group, arrival, self._new_id, waiting.when)
            elif receipt is Receipt.FILTERED:
                self.listener.heard(group, arrival)
        return receipt

    def _take_part(self, group: Group, arrival: Arrival, when: Moment) -> Receipt:
        """Take a chunk, the event, or the end of a large body, which no rule reads. After the last two it is not unfinished."""
        receipt = self._take(group, arrival, when, by_rule=False)
        part = read_dataref(arrival.dataref or "")
        if not isinstance(part, BodyChunk):
            crash_point(CrashPoint.BEFORE_BODY_COMMIT)
            keep_value(self.connection, unfinished_key(part.id), None)
            if receipt is Receipt.DUPLICATE:
                self._streams.of_lane(arrival.lane).counts.acknowledged += 1
                self.append(group, end_of_body(arrival, part.id), when, NO_IDENTITY)
        return receipt

    def _take(self, group: Group, arrival: Arrival, when: Moment, *, by_rule: bool) -> Receipt:
        sent = arrival.retransmission
        if sent is not None and sent.ack_delivery is AckDelivery.DOUBTFUL and arrival.type != DEAD_TYPE:
            arrival = self.duplicates.with_possible_original(arrival, sent)
        may_reduce = self._rules is not None and arrival.dataref is None
        reduces = may_reduce and self.reducer is not None and self.reducer.applies(arrival)
        if by_rule or arrival.evidence is not None or has_rare_attributes(arrival):
            return self._take_special(group, arrival, when, reduces=reduces)
        return self._take_plain(group, arrival, when, reduces=reduces)

    def _take_plain(self, group: Group, arrival: Arrival, when: Moment, *, reduces: bool) -> Receipt:
        """Take an arrival without device identity and rare attributes.

        Nearly all arrivals are such. So this is one function, which `append` repeats in part, and it encodes by a template.
        """
        stream = self._streams.of_lane(arrival.lane)
        counts = stream.counts
        counts.acknowledged += 1
        group.touched[stream.stream] = stream
        event_id = sequence_id(stream.stream, stream.head + 1, group.tag)
        message = None
        sent = arrival.retransmission
        if sent is not None and sent.again and self.duplicates.resends.repeats(arrival, sent, group.age_s):
            counts.duplicate += 1
            self._streams.changed(stream)
            return Receipt.DUPLICATE
        if reduces and self._keeps_back(group, arrival, when, NO_IDENTITY):
            return Receipt.FILTERED
        if sent is not None:
            message = self.duplicates.resends.note(arrival, sent, group.age_s, event_id)
        stream.head = head = stream.head + 1
        counts.stored += 1
        body = self._encoder.encode_plain(arrival, event_id, when, stream)
        stream.unwritten.append((EventRecord(head, group.commit_id, body), message))
        if when.beacon is not None:
            group.note_unsynced(stream, when.beacon)
        if arrival.type == DEAD_TYPE:
            counts.dead += 1
            self._streams.changed(stream)
            return Receipt.DEAD
        self._new_id = event_id
        return Receipt.STORED

    def _take_special(self, group: Group, arrival: Arrival, when: Moment, *, reduces: bool) -> Receipt:
        """Take an arrival with a device identity or with rare attributes."""
        sent, duplicates = arrival.retransmission, self.duplicates
        payload = arrival.payload_digest(sent.token if sent else b"")
        stream = self._streams.of_lane(arrival.lane)
        verdict = None
        if arrival.report is None or duplicates.is_news(group, arrival, arrival.report):
            verdict = duplicates.judge(group, arrival, payload)
        if verdict is None or (isinstance(verdict, KnownEvent) and arrival.report is not None and sent is None):
            # The count is saved with the next change of another kind: an unchanged report alone causes no write.
            duplicates.note_unchanged(group, arrival, payload)
            stream.counts.filtered += 1
            if verdict is not None and verdict.rule is not None:
                count_rule(stream.counts.rules, verdict.rule, RuleOutcome.DUPLICATE)
            self._streams.appended(stream, 0)
            return Receipt.FILTERED
        stream.counts.acknowledged += 1
        if isinstance(verdict, KnownEvent):
            group.memory.update((key, (arrival.device, entry)) for key, entry in verdict.remember)
            stream.counts.duplicate += 1
            group.touched[stream.stream] = stream
            self._streams.changed(stream)
            if verdict.rule is not None:
                self._streams.count_rule(stream, verdict.rule, RuleOutcome.DUPLICATE)
            return Receipt.DUPLICATE
        if arrival.report is not None:
            duplicates.note_reported(group, arrival)
        return self._take_new(group, arrival, when, verdict, reduces=reduces)

    def _take_new(self, group: Group, arrival: Arrival, when: Moment, verdict: NewEvent, *, reduces: bool) -> Receipt:
        """Keep back or append an arrival that is no duplicate, and count it by the rule that identified it."""
        if (rule := arrival.identity) is not None:
            outcome = verdict.outcome if rule.content is not None else None
            self.count_rule(arrival.lane, rule.rule, outcome or RuleOutcome.UNIDENTIFIED)
        if verdict.original is not None:
            relation = POSSIBLE_DUPLICATE if verdict.outcome is RuleOutcome.MARKED else CONFLICTING
            arrival = naming(arrival, relation, verdict.original)
        if reduces and self._keeps_back(group, arrival, when, verdict):
            return Receipt.FILTERED
        event_id = self.append(group, arrival, when, verdict)
        if verdict.outcome is not RuleOutcome.MARKED:
            self._new_id = event_id
        return Receipt.STORED

    def _keeps_back(self, group: Group, arrival: Arrival, when: Moment, verdict: NewEvent) -> bool:
        """Return True if a rule keeps a new event back. The event has an id of its own for the rules that act."""
        if self.reducer is None or not self.reducer.keeps_back(group, arrival, when, verdict):
            return False
        self._new_id = verdict.id or f"kept.{group.commit_id.hex()}.{group.incarnation():x}"
        return True

    def append(self, group: Group, arrival: Arrival, when: Moment, verdict: NewEvent) -> str:
        """Append an arrival to its lane's stream. The caller counts it as acknowledged. Returns the id of the event."""
        stream = self._streams.of_lane(arrival.lane)
        stream.head += 1
        stream.counts.stored += 1
        event_id = verdict.id or sequence_id(stream.stream, stream.head, group.tag)
        body = self._encoder.encode(arrival, event_id, when, verdict, stream)
        sent = arrival.retransmission
        message = self.duplicates.resends.note(arrival, sent, group.age_s, event_id) if sent is not None else None
        stream.unwritten.append((EventRecord(stream.head, group.commit_id, body), message))
        if when.beacon is not None:
            group.note_unsynced(stream, when.beacon)
        group.touched[stream.stream] = stream
        for key, entry in verdict.remember:
            group.memory[key] = (arrival.device, entry)
        return event_id


def keep_value(connection: sqlite3.Connection, key: str, value: bytes | None) -> None:
    """Store a value of an adapter or of the rules, or delete it if `value` is None."""
    if value is None:
        connection.execute(SQL["drop_kept"], (key,))
    else:
        connection.execute(SQL["keep"], (key, value))


def insert_many(connection: sqlite3.Connection, rows: list[EventRow]) -> None:
    """Insert rows of `event`, many per statement.

    `sqlite3` releases the interpreter's lock for each statement, and to get it back costs more than a row.
    """
    whole = len(rows) - len(rows) % ROWS_PER_STATEMENT
    for first in range(0, whole, ROWS_PER_STATEMENT):
        connection.execute(_INSERT_MANY, list(chain.from_iterable(rows[first : first + ROWS_PER_STATEMENT])))
    connection.executemany(SQL["insert_event"], rows[whole:])
