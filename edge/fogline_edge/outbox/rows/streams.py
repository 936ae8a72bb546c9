"""State and counts of each stream.

A row of `event` is enough to know that a plain event was acknowledged and stored. So the row of the stream is written only
every so often, and with every other change; at the start, the rows above its saved head are counted.
"""

import sqlite3
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec

from fogline.events.event import Lane
from fogline.gateway.ledger import Counts, RuleCounts, RuleOutcome, count_rule
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.stored_body import pack_body

MAX_TAIL_BYTES = 1024 * 1024
COMMIT_ID_BYTES = 8
SAVED_ROWS = 1024
"""Rows above the saved heads from which the streams are saved: the start reads them all."""


class EventRecord(NamedTuple):
    """One event as it is sent. `commit_id`: of the commit that stored it.

    `spans`: the number of sequences, up to its own, that it covers; a gap record may cover many.
    """

    sequence: int
    commit_id: bytes
    body: bytes
    spans: int = 1


EventRow = tuple[int, bytes, bytes, bytes | None]
"""A row of `event`: place, commit id, stored body, and the value of `resend_memory` if the sender may send it again."""
SEQUENCE_BITS = 40
SEQUENCE_MASK = (1 << SEQUENCE_BITS) - 1
_COUNTS = ("acknowledged", "stored", "duplicate", "dead", "sent", "settled", "quarantined", "filtered", "dropped")
_saved_counts = attrgetter(*_COUNTS)
decode_rules = msgspec.json.Decoder(RuleCounts).decode
"""Returns the counts by rule of a stream's row. Raises `msgspec.MsgspecError`."""


def event_place(number: int, sequence: int) -> int:
    """Return the row id of an event: the number of its stream, then its sequence. So a stream grows at one end of the table."""
    return number << SEQUENCE_BITS | sequence


@dataclass(slots=True)
class DroppedRange:
    """The dropped range of a stream that is not settled yet. A dropped row may have been sent before and may be in Kafka.

    Only the bridge knows, and takes only the missing part of a gap record. `upto`: the sequence of the gap record over all
    unsettled sequences up to it; 0: none. It was sent for the sequences above `sent_after`, up to `sent_upto`.
    """

    upto: int = 0
    sent_after: int = 0
    sent_upto: int = 0

    def send(self, after: int) -> None:
        """Note that the gap record is sent for the sequences above `after`."""
        self.sent_after = min(self.sent_after, after) if self.sent_upto else after
        self.sent_upto = self.upto

    def settle(self, former: int, settled: int) -> int:
        """Settle the sequences above `former` up to `settled`. Returns how many dropped ones the bridge has as events."""
        last = min(settled, self.upto)
        as_events = max(0, last - max(former, self.sent_upto)) + max(0, min(last, self.sent_after) - former)
        if settled >= self.upto:
            self.upto = self.sent_after = self.sent_upto = 0
        return as_events if last > former else 0


@dataclass(slots=True)
class Stream:
    """One stream.

    `head`: the highest stored sequence. `settled`: the highest that the bridge accepted, known in memory only. `purged`: its
    value in the file, where rows up to there are deleted; `purged_commit_id` is that of the last one. `stated`: `arrivals` at
    the last statement of this run. `unwritten`: events of the open transaction, with their messages; `tail`: the newest
    committed events. `unpurged_gap`, `undropped`: the gap record that was settled and is not deleted yet, and how many of its
    events the bridge has. `unsure_upto`: the highest sequence that a former run may have sent.
    """

    number: int
    stream: str
    lane: Lane
    open: bool
    head: int = 0
    purged: int = 0
    purged_commit_id: bytes = b""
    settled: int = 0
    counts: Counts = field(default_factory=Counts)
    stated: tuple[int, ...] = (0, 0, 0, 0, 0)
    dropped: DroppedRange = field(default_factory=DroppedRange)
    unsure_upto: int = 0
    unpurged_gap: int = 0
    undropped: int = 0
    unwritten: list[tuple[EventRecord, bytes | None]] = field(default_factory=list)
    tail: deque[EventRecord] = field(default_factory=deque)
    tail_bytes: int = 0

    def saved(self) -> tuple[int | bytes | str, ...]:
        """Return the values of the stream's row, which are those as of `purged`."""
        counts = msgspec.structs.replace(
            self.counts,
            settled=self.counts.settled - self.settled + self.purged,
            dropped=self.counts.dropped + self.undropped,
        )
        dropped_upto = self.dropped.upto or self.unpurged_gap
        rules = msgspec.json.encode(counts.rules).decode() if counts.rules else "{}"
        return (self.head, self.purged, self.purged_commit_id, dropped_upto, *_saved_counts(counts), rules, self.number)

    def take_unwritten(self) -> tuple[list[EventRecord], list[EventRow]]:
        """Return the events of the open transaction, and their rows."""
        unwritten, self.unwritten = self.unwritten, []
        first = event_place(self.number, 0)
        rows = [(first + event.sequence, event.commit_id, pack_body(event.body), message) for event, message in unwritten]
        return [event for event, _ in unwritten], rows

    def keep(self, events: list[EventRecord]) -> None:
        """Keep committed events in memory, so that the uplink need not read them from the file."""
        if not events:
            return
        if self.tail and self.tail[-1].sequence + 1 != events[0].sequence:
            self.forget_tail()
        self.tail.extend(events)
        self.tail_bytes += sum([len(each.body) for each in events])
        while self.tail_bytes > MAX_TAIL_BYTES:
            self.tail_bytes -= len(self.tail.popleft().body)

    def forget_tail(self, upto: int | None = None) -> None:
        """Drop the events up to a sequence (by default all) from memory: they changed, or are not needed any more."""
        tail = self.tail
        while tail and (upto is None or tail[0].sequence <= upto):
            self.tail_bytes -= len(tail.popleft().body)

    def remembered(self, after: int, limit: int) -> list[EventRecord] | None:
        """Return at most `limit` events above `after` from memory, or None if the file must be read."""
        if not self.tail or not self.tail[0].sequence <= after + 1 <= self.tail[-1].sequence:
            return None
        skip = after + 1 - self.tail[0].sequence
        return list(islice(self.tail, skip, skip + limit))

    @property
    def arrivals(self) -> tuple[int, ...]:
        """The counts whose change causes a new statement."""
        counts = self.counts
        return (counts.acknowledged, counts.duplicate, counts.dead, counts.quarantined, counts.dropped)

    @property
    def backlog(self) -> int:
        """The number of sequences that the bridge has not accepted."""
        return self.head - self.settled

    @property
    def kept_after(self) -> int:
        """The highest sequence that is settled or dropped."""
        return max(self.settled, self.dropped.upto)

    @property
    def droppable(self) -> int:
        """The number of droppable events. The last event of a closed stream is its final statement, which is never dropped."""
        return self.head - self.kept_after - (0 if self.open else 1)


class Streams:
    """All streams of one outbox: the open one of each lane, and closed ones that still hold unsettled rows.

    `in_flight`: the most events of a stream that may be in flight at once.
    """

    def __init__(self, connection: sqlite3.Connection, in_flight: int = 0) -> None:
        self._connection = connection
        self._all: dict[str, Stream] = {}
        self._open: dict[Lane, Stream] = {}
        self._changed: dict[str, Stream] = {}
        self._unsaved_rows = 0
        for row in connection.execute(SQL["streams"]).fetchall():
            self._load(row, in_flight)

    def _load(self, row: Sequence[Any], in_flight: int) -> None:
        """Add a stream of the file. Rows above its saved head are plain events: each counts as acknowledged and stored."""
        number, name, lane, is_open, head, purged, purged_commit_id, upto, *counts, rules = row
        known = Stream(number, name, Lane(lane), bool(is_open), head, purged, purged_commit_id, settled=purged)
        known.counts = Counts(**dict(zip(_COUNTS, counts, strict=True)), rules=decode_rules(rules))
        last = self._connection.execute(SQL["last_event"], (event_place(number, head), event_place(number + 1, 0))).fetchone()
        if last is not None:
            known.head = last[0] & SEQUENCE_MASK
            known.counts.acknowledged += known.head - head
            known.counts.stored += known.head - head
            self.changed(known)
        known.dropped = DroppedRange(upto, sent_upto=upto)
        known.unsure_upto = known.kept_after + in_flight
        self._all[name] = known
        if known.open:
            self._open[known.lane] = known

    def of_lane(self, lane: Lane) -> Stream:
        """Return the open stream of a lane; the first arrival opens it."""
        return self._open.get(lane) or self.open(lane, "first")

    def open(self, lane: Lane, reason: str) -> Stream:
        """Open a new stream with a random 64-bit name, and close the lane's former one."""
        if (former := self._open.pop(lane, None)) is not None:
            former.open = False
            self._connection.execute(SQL["close_stream"], (reason, former.number))
        name = token_hex(8)
        ((number,),) = self._connection.execute(SQL["open_stream"], (name, lane.value, reason)).fetchall()
        self._all[name] = self._open[lane] = Stream(number, name, lane, open=True)
        return self._open[lane]

    def get(self, stream: str) -> Stream:
        """Return a stream by its name. Raises `KeyError`."""
        return self._all[stream]

    def opened(self) -> list[Stream]:
        """Return the open streams."""
        return list(self._open.values())

    def pending(self) -> list[Stream]:
        """Return the streams that hello announces: open ones, and closed ones with unaccepted rows."""
        return [stream for stream in self._all.values() if stream.open or stream.backlog]

    def everything(self) -> list[Stream]:
        """Return all streams, the oldest first."""
        return list(self._all.values())

    def appended(self, stream: Stream, rows: int) -> None:
        """Note `rows` new rows of acknowledged events, which need not be saved at once."""
        self._changed[stream.stream] = stream
        self._unsaved_rows += rows

    def changed(self, stream: Stream) -> None:
        """Note a change of a stream that its rows do not tell: it is saved with the open transaction."""
        self._changed[stream.stream] = stream
        self._unsaved_rows += SAVED_ROWS

    def count_rule(self, stream: Stream, rule: str, outcome: RuleOutcome) -> None:
        """Count an event by a rule. The count is saved with the open transaction."""
        count_rule(stream.counts.rules, rule, outcome)
        self.changed(stream)

    @property
    def due(self) -> bool:
        """The changed streams are to be saved with the open transaction."""
        return self._unsaved_rows >= SAVED_ROWS

    def save(self) -> None:
        """Write the changed streams in the open transaction."""
        changed, self._changed = self._changed, {}
        self._unsaved_rows = 0
        self._connection.executemany(SQL["save_stream"], [each.saved() for each in changed.values()])
