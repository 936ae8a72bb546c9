"""What the outbox knows of each stream, kept beside the rows and saved in every transaction that changes it."""

import sqlite3
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from secrets import token_hex
from typing import NamedTuple

from fogline.event import Lane
from fogline.ledger import Counts
from fogline_edge.outbox.dropped import Dropped
from fogline_edge.outbox.queries import SQL

MAX_TAIL_BYTES = 4 * 1024 * 1024


class Row(NamedTuple):
    """One event as it will be sent. `spans`: how many sequences, up to its own, it stands for: a gap record more than one."""

    sequence: int
    chain: bytes
    body: bytes
    spans: int = 1


Written = tuple[int, int, bytes, bytes]
"""A row of `event`: the stream's number, sequence, chain, body."""
_body_of = itemgetter(3)


@dataclass(slots=True)
class Stream:
    """One stream.

    `head`: the highest sequence written, `settled`: the highest that the bridge accepted; `chain` and `settled_chain`
    belong to them. `stated`: what the last statement of this run said of arrivals. `fresh`: rows
    that are not written yet; `tail`: the newest committed ones. `filtered_saved`: of the count `filtered`, what is written.
    `dropped`: what of it was let go, `dropped_saved`: what of that is written; `unsure_upto`: up to where a former run may have
    sent it.
    """

    number: int
    stream: str
    lane: Lane
    open: bool
    head: int = 0
    chain: bytes = b""
    settled: int = 0
    settled_chain: bytes = b""
    counts: Counts = field(default_factory=Counts)
    filtered_saved: int = 0
    stated: tuple[int, ...] = (0, 0, 0, 0, 0)
    dropped: Dropped = field(default_factory=Dropped)
    dropped_saved: tuple[int, int] = (0, 0)
    unsure_upto: int = 0
    fresh: list[Written] = field(default_factory=list)
    tail: deque[Written] = field(default_factory=deque)
    tail_bytes: int = 0

    def keep(self, rows: list[Written]) -> None:
        """These are committed: remember them, so that what is sent soon is not read from the file."""
        if not rows:
            return
        if self.tail and self.tail[-1][1] + 1 != rows[0][1]:
            self.forget_tail()
        self.tail.extend(rows)
        self.tail_bytes += sum(map(len, map(_body_of, rows)))
        while self.tail_bytes > MAX_TAIL_BYTES:
            self.tail_bytes -= len(self.tail.popleft()[3])

    def forget_tail(self, upto: int | None = None) -> None:
        """The rows up to a sequence (all of them, if none is given) are not as remembered, or of no use any more."""
        tail = self.tail
        while tail and (upto is None or tail[0][1] <= upto):
            self.tail_bytes -= len(tail.popleft()[3])

    def remembered(self, after: int, limit: int) -> list[Row] | None:
        """At most `limit` rows above `after`, `None` if the file has to be asked."""
        if not self.tail or not self.tail[0][1] <= after + 1 <= self.tail[-1][1]:
            return None
        skip = after + 1 - self.tail[0][1]
        return [Row(sequence, chain, body) for _, sequence, chain, body in islice(self.tail, skip, skip + limit)]

    @property
    def arrivals(self) -> tuple[int, ...]:
        """The counts that a device's doing changes: worth a new statement."""
        counts = self.counts
        return (counts.acknowledged, counts.duplicate, counts.dead, counts.quarantined, counts.dropped)

    @property
    def backlog(self) -> int:
        """Sequences that the bridge has not accepted."""
        return self.head - self.settled

    @property
    def kept_after(self) -> int:
        """Everything up to here is settled or dropped."""
        return max(self.settled, self.dropped.upto)

    @property
    def droppable(self) -> int:
        """How many events could be let go: of a closed stream, all but what says that it is closed."""
        return self.head - self.kept_after - (0 if self.open else 1)


class Streams:
    """All streams of one outbox: the open one of each lane, and closed ones that still hold unsettled rows.

    `in_flight`: how many rows of a stream may be on their way at once.
    """

    def __init__(self, connection: sqlite3.Connection, in_flight: int = 0) -> None:
        self._connection = connection
        self._all: dict[str, Stream] = {}
        self._open: dict[Lane, Stream] = {}
        for row in connection.execute(SQL["streams"]):
            number, stream, lane, is_open, head, chain, settled, settled_chain, *counts = row
            places = (head, chain, settled, settled_chain)
            known = Stream(number, stream, Lane(lane), bool(is_open), *places, Counts(**_named(counts)))
            self._all[stream] = known
            if known.open:
                self._open[known.lane] = known
        filtered = dict(connection.execute(SQL["filtered"]).fetchall())
        dropped = {number: (upto, events) for number, upto, events in connection.execute(SQL["dropped"]).fetchall()}
        for known in self._all.values():
            known.counts.filtered = known.filtered_saved = filtered.get(known.number, 0)
            upto, known.counts.dropped = known.dropped_saved = dropped.get(known.number, (0, 0))
            known.dropped = Dropped(upto, sent_upto=upto)
            known.unsure_upto = known.kept_after + in_flight

    def of_lane(self, lane: Lane) -> Stream:
        """The open stream of a lane; the first arrival opens it."""
        return self._open.get(lane) or self.open(lane, "first")

    def open(self, lane: Lane, reason: str) -> Stream:
        """Open a new stream with a random 64-bit name; the former one of the lane is closed."""
        if (former := self._open.pop(lane, None)) is not None:
            former.open = False
            self._connection.execute(SQL["close_stream"], (reason, former.number))
        name = token_hex(8)
        ((number,),) = self._connection.execute(SQL["open_stream"], (name, lane.value, reason)).fetchall()
        self._all[name] = self._open[lane] = Stream(number, name, lane, open=True)
        return self._open[lane]

    def get(self, stream: str) -> Stream:
        """A stream by its name. Raises `KeyError`."""
        return self._all[stream]

    def opened(self) -> list[Stream]:
        """The open streams."""
        return list(self._open.values())

    def pending(self) -> list[Stream]:
        """Streams that matter to the bridge: open, or with rows that it has not accepted."""
        return [stream for stream in self._all.values() if stream.open or stream.backlog]

    def everything(self) -> list[Stream]:
        """All of them, the oldest first."""
        return list(self._all.values())

    def save(self, stream: Stream) -> None:
        """Write what changed, in the transaction that is open."""
        counts = stream.counts
        self._connection.execute(
            SQL["save_stream"],
            (
                stream.head,
                stream.chain,
                stream.settled,
                stream.settled_chain,
                counts.acknowledged,
                counts.stored,
                counts.duplicate,
                counts.dead,
                counts.sent,
                counts.settled,
                counts.quarantined,
                stream.number,
            ),
        )
        self._save_filtered(stream)
        if (dropped := (stream.dropped.upto, counts.dropped)) != stream.dropped_saved:
            self._connection.execute(SQL["save_dropped"], (stream.number, *dropped))
            stream.dropped_saved = dropped

    def save_filtered(self) -> None:
        """Write how much was no news, where that has changed."""
        for stream in self._all.values():
            self._save_filtered(stream)

    def _save_filtered(self, stream: Stream) -> None:
        filtered = stream.counts.filtered
        if filtered != stream.filtered_saved:
            self._connection.execute(SQL["save_filtered"], (stream.number, filtered))
            stream.filtered_saved = filtered


def _named(counts: list[int]) -> dict[str, int]:
    names = ("acknowledged", "stored", "duplicate", "dead", "sent", "settled", "quarantined")
    return dict(zip(names, counts, strict=True))
