"""Events that the bridge refused for good. They have a share of the file of their own.

When the share is full, the oldest events are deleted, and a gap record in their lane's stream says which. A person may
delete the others, or send them again once the bridge takes them (`fogline-edge outbox --quarantine`).
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fogline.codec import Replay, encode_event
from fogline.errors import Poison
from fogline.event import Lane
from fogline.gap import Gap, GapReason, Lost, gap_event
from fogline.identity import chained
from fogline_edge.boot import time_quality
from fogline_edge.outbox.queries import SQL
from fogline_edge.outbox.streams import Stream

if TYPE_CHECKING:
    from fogline_edge.outbox.writer import Writer

SHARE = 0.10
"""The share of the outbox's file that refused events may take."""
ROW_BYTES = 600
"""The most bytes that a row takes beside its body."""
ROWS_AT_ONCE = 500
"""The most events that are deleted in one step."""
WHY = "the quarantine was full: events that the bridge had refused are not kept any more"

_log = logging.getLogger("fogline.outbox")

Place = tuple[int, int]
"""The number of a stream in this file, and a sequence."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A row of the quarantine. `condition`, `description`: the bridge's words."""

    place: Place
    condition: str
    description: str
    body: bytes
    at: str


class Quarantine:
    """Used on the writer's thread, within a transaction. After a rollback, use a new one."""

    def __init__(self, connection: sqlite3.Connection, max_bytes: int) -> None:
        self._connection = connection
        self._max_bytes = int(max_bytes * SHARE)
        self._held: int | None = None

    @property
    def over(self) -> bool:
        """More is kept than the share allows: `trim` has more to do."""
        return self._held is not None and self._held > self._max_bytes

    def add(self, writer: "Writer", refused: Refused) -> bool:
        """Keep a refused event. Returns False for an event that is larger than the whole share, which is not kept."""
        wanted = len(refused.body) + ROW_BYTES
        if wanted > self._max_bytes:
            _log.error("a refused event of %d bytes is larger than the quarantine, and is not kept", len(refused.body))
            return False
        while self.trim(writer, wanted):
            pass
        row = (*refused.place, refused.condition, refused.description, refused.body, refused.at)
        self._connection.execute(SQL["quarantine"], row)
        self._held = self._held_bytes() + wanted
        return True

    def trim(self, writer: "Writer", wanted: int = 0) -> int:
        """Delete some of the oldest events if less than `wanted` bytes of the share are free. Returns how many went."""
        held, places, last = self._held_bytes(), [], 0
        if held + wanted <= self._max_bytes:
            return 0
        for rowid, number, sequence, size in self._connection.execute(SQL["oldest_refused"], (ROWS_AT_ONCE,)).fetchall():
            if held + wanted <= self._max_bytes:
                break
            places.append((number, sequence))
            held, last = held - size - ROW_BYTES, rowid
        self._connection.execute(SQL["forget_refused"], (last,))
        self._held = held
        _log.warning("%s: the %d oldest were deleted", WHY, len(places))
        for lost, lane in _runs(writer, places):
            _append_gap(writer, lane, lost)
        return len(places)

    def _held_bytes(self) -> int:
        if self._held is None:
            count, size = self._connection.execute(SQL["size_refused"]).fetchone()
            self._held = int(size) + count * ROW_BYTES
        return self._held


def delete(writer: "Writer", places: Sequence[Place]) -> int:
    """Delete these events for good. Returns how many there were."""
    with writer.transaction():
        return sum(writer.connection.execute(SQL["delete_refused"], each).rowcount for each in places)


def resend(writer: "Writer", places: Sequence[Place]) -> int:
    """Put these events at the end of their lanes' streams, marked `replayed`. Returns how many could be read."""
    sent = 0
    with writer.transaction():
        for place in places:
            for (body,) in writer.connection.execute(SQL["one_refused"], place).fetchall():
                try:
                    replay = Replay(body)
                except Poison as error:
                    _log.warning("the event %d/%d cannot be read, and stays in quarantine: %s", *place, error)
                    continue
                _append(writer, writer.streams.of_lane(replay.lane), replay.encode)
                writer.connection.execute(SQL["delete_refused"], place)
                sent += 1
    return sent


def _runs(writer: "Writer", places: Sequence[Place]) -> list[tuple[Lost, Lane]]:
    """Adjacent sequences of a stream as one loss each, and the lane that it belongs to."""
    by_number = {stream.number: stream for stream in writer.streams.everything()}
    runs: list[tuple[int, int, int]] = []
    for number, sequence in sorted(places):
        if runs and runs[-1][0] == number and runs[-1][2] + 1 == sequence:
            runs[-1] = (number, runs[-1][1], sequence)
        else:
            runs.append((number, sequence, sequence))
    known = [(by_number.get(number), first, last) for number, first, last in runs]
    return [
        (Lost(each.stream if each else None, first, last), each.lane if each else Lane.ALARM) for each, first, last in known
    ]


def _append_gap(writer: "Writer", lane: Lane, lost: Lost) -> None:
    (tenant, gateway), now_ns = writer.identity, writer.clock.time_ns()

    def encode(stream: str, sequence: int) -> bytes:
        event = gap_event(
            Gap(GapReason.DROPPED, sequence, sequence, WHY, lost=lost),
            tenant=tenant,
            gateway=gateway,
            stream=stream,
            lane=lane,
            now_ns=now_ns,
            timequality=time_quality(writer.clock),
            replayed=True,
        )
        return encode_event(event)

    _append(writer, writer.streams.of_lane(lane), encode)


def _append(writer: "Writer", stream: Stream, encode: Callable[[str, int], bytes]) -> None:
    """Give a row the next sequence of a stream."""
    stream.head += 1
    stream.counts.stored += 1
    body = encode(stream.stream, stream.head)
    stream.chain = chained(stream.chain, "", body, os.urandom(8))
    writer.connection.execute(SQL["insert_event"], (stream.number, stream.head, stream.chain, body))
    writer.streams.save(stream)
