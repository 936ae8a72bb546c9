"""Events that the bridge rejected for good. They have a share of the file of their own.

When the share is full, the oldest events are deleted, and a gap record in their lane's stream names them. An operator may
delete the others, or resend them once the bridge takes them (`fogline-edge outbox --quarantine`).
"""

import logging
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from fogline.errors import Poison
from fogline.events.codec import Replay, encode_event
from fogline.events.event import Event, Lane
from fogline.events.gap import Gap, GapReason, Lost, gap_event
from fogline_edge.machine.boot import Clock, time_quality
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.rows.streams import COMMIT_ID_BYTES, Stream, Streams, event_place

SHARE = 0.10
"""The share of the outbox's file that rejected events may take."""
ROW_BYTES = 600
"""The most bytes that a row takes beside its body."""
ROWS_AT_ONCE = 500  # that are deleted in one step
WHY = "the quarantine was full: events that the bridge had refused are not kept any more"

_log = logging.getLogger("fogline.outbox")

EventKey = tuple[int, int]
"""The number of a stream in this file, and a sequence."""


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """A row of the quarantine. `condition`, `description`: those of the AMQP outcome."""

    key: EventKey
    condition: str
    description: str
    body: bytes
    at: str


class GapRecords:
    """Makes the gap records of one gateway. `identity`: tenant and gateway."""

    def __init__(self, identity: tuple[str, str], clock: Clock) -> None:
        self._tenant, self._gateway = identity
        self._clock = clock

    def make(self, gap: Gap, stream: Stream, *, replayed: bool = False) -> Event:
        """Make the gap record of a gap in `stream`. `replayed`: see `fogline.events.gap.gap_event`."""
        return gap_event(
            gap,
            tenant=self._tenant,
            gateway=self._gateway,
            stream=stream.stream,
            lane=stream.lane,
            now_ns=self._clock.time_ns(),
            timequality=time_quality(self._clock),
            replayed=replayed,
        )


class Quarantine:
    """Used on the writer's thread, within a transaction. After a rollback, use a new one."""

    def __init__(self, connection: sqlite3.Connection, streams: Streams, gap_records: GapRecords, max_bytes: int) -> None:
        self._connection = connection
        self._streams = streams
        self._gap_records = gap_records
        self._max_bytes = int(max_bytes * SHARE)
        self._used: int | None = None

    @property
    def over(self) -> bool:
        """The events exceed the share: `trim` has more to do."""
        return self._used is not None and self._used > self._max_bytes

    def add(self, rejected: QuarantinedEvent) -> bool:
        """Keep a rejected event. Returns False for an event that is larger than the whole share, which is not kept."""
        wanted = len(rejected.body) + ROW_BYTES
        if wanted > self._max_bytes:
            _log.error("a rejected event of %d bytes is larger than the quarantine, and is not kept", len(rejected.body))
            return False
        while self.trim(wanted):
            pass
        row = (*rejected.key, rejected.condition, rejected.description, rejected.body, rejected.at)
        self._connection.execute(SQL["quarantine"], row)
        self._used = self._used_bytes() + wanted
        return True

    def trim(self, wanted: int = 0) -> int:
        """Delete some of the oldest events if less than `wanted` bytes of the share are free. Returns their number."""
        used, keys, last = self._used_bytes(), [], 0
        if used + wanted <= self._max_bytes:
            return 0
        for rowid, number, sequence, size in self._connection.execute(SQL["oldest_quarantined"], (ROWS_AT_ONCE,)).fetchall():
            if used + wanted <= self._max_bytes:
                break
            keys.append((number, sequence))
            used, last = used - size - ROW_BYTES, rowid
        self._connection.execute(SQL["trim_quarantine"], (last,))
        self._used = used
        _log.warning("%s: the %d oldest were deleted", WHY, len(keys), extra={"reason": "dropped"})
        for lost, lane in self._runs(keys):
            self._append_gap(lane, lost)
        return len(keys)

    def delete(self, keys: Sequence[EventKey]) -> int:
        """Delete these events for good. Returns the number of events that existed."""
        return sum(self._connection.execute(SQL["delete_quarantined"], each).rowcount for each in keys)

    def resend(self, keys: Sequence[EventKey]) -> int:
        """Append these events to their lanes' streams, marked `replayed`. Returns the number of readable events."""
        sent = 0
        for key in keys:
            for (body,) in self._connection.execute(SQL["one_quarantined"], key).fetchall():
                try:
                    replay = Replay(body)
                except Poison as error:
                    _log.warning("the event %d/%d cannot be read, and stays in quarantine: %s", *key, error)
                    continue
                stream = self._streams.of_lane(replay.lane)
                self._append(stream, replay.encode(stream.stream, stream.head + 1))
                self._connection.execute(SQL["delete_quarantined"], key)
                sent += 1
        return sent

    def _used_bytes(self) -> int:
        if self._used is None:
            count, size = self._connection.execute(SQL["size_quarantine"]).fetchone()
            self._used = int(size) + count * ROW_BYTES
        return self._used

    def _runs(self, keys: Sequence[EventKey]) -> list[tuple[Lost, Lane]]:
        """Return adjacent sequences of a stream as one loss each, with the stream's lane."""
        by_number = {stream.number: stream for stream in self._streams.everything()}
        runs: list[tuple[int, int, int]] = []
        for number, sequence in sorted(keys):
            if runs and runs[-1][0] == number and runs[-1][2] + 1 == sequence:
                runs[-1] = (number, runs[-1][1], sequence)
            else:
                runs.append((number, sequence, sequence))
        known = [(by_number.get(number), first, last) for number, first, last in runs]
        return [
            (Lost(each.stream if each else None, first, last), each.lane if each else Lane.ALARM) for each, first, last in known
        ]

    def _append_gap(self, lane: Lane, lost: Lost) -> None:
        stream = self._streams.of_lane(lane)
        gap = Gap(GapReason.DROPPED, stream.head + 1, stream.head + 1, WHY, lost=lost)
        self._append(stream, encode_event(self._gap_records.make(gap, stream, replayed=True)))

    def _append(self, stream: Stream, body: bytes) -> None:
        """Append a row with the stream's next sequence."""
        stream.head += 1
        stream.counts.stored += 1
        self._connection.execute(
            SQL["insert_event"], (event_place(stream.number, stream.head), os.urandom(COMMIT_ID_BYTES), body, None)
        )
        self._streams.changed(stream)
