"""What the outbox knows of each stream, kept beside the rows and saved in every transaction that changes it."""

import sqlite3
from dataclasses import dataclass, field
from secrets import token_hex

from fogline.event import Lane
from fogline.ledger import Counts
from fogline_edge.outbox.queries import SQL


@dataclass(slots=True)
class Stream:
    """One stream.

    `head`: the highest sequence written, `settled`: the highest that the bridge accepted; `chain` and `settled_chain`
    belong to them. `stated`: what the last statement of this run said of arrivals.
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
    stated: tuple[int, ...] = (0, 0, 0, 0)

    @property
    def arrivals(self) -> tuple[int, ...]:
        """The counts that a device's doing changes: worth a new statement."""
        counts = self.counts
        return (counts.acknowledged, counts.duplicate, counts.dead, counts.quarantined)

    @property
    def backlog(self) -> int:
        """Sequences that the bridge has not accepted."""
        return self.head - self.settled


class Streams:
    """All streams of one outbox: the open one of each lane, and closed ones that still hold unsettled rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
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


def _named(counts: list[int]) -> dict[str, int]:
    names = ("acknowledged", "stored", "duplicate", "dead", "sent", "settled", "quarantined")
    return dict(zip(names, counts, strict=True))
