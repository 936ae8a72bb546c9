"""The streams and events that were found in a damaged file.

The body of an event has a checksum, the row of a stream has none. Where they contradict each other, or the row contradicts
itself, the events are right.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from fogline.errors import Poison
from fogline.events.codec import Replay
from fogline.events.event import Lane
from fogline_edge.outbox.rows.stored_body import unpack_body
from fogline_edge.outbox.salvage.carving import CarvedEvent, CarvedRow, Carving

_ROWS_AT_ONCE = 512
_WITNESSES = 16
"""The first readable events of a stream that are compared with the stream's row."""


@dataclass(slots=True)
class FormerStream:
    """A stream of the damaged file, as far as it is known.

    `purged`: `settled` of the newest image of its row. No event up to there is in the table.
    """

    stream: str
    lane: Lane
    head: int
    settled: int
    purged: int


class FoundStreams:
    """Streams and places of events, in a temporary table of the new file. Note all rows before reading.

    `contradicted`: a row of a stream was wrong. Then more may be lost than is known.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.contradicted = False
        self._connection = connection
        self._former: dict[int, FormerStream] = {}
        self._events: list[tuple[int, ...]] = []
        connection.execute("CREATE TEMP TABLE found (stream, sequence, rank, place, offset)")

    def close(self) -> None:
        """Drop the temporary table."""
        self._connection.execute("DROP TABLE found")

    def note_event(self, event: CarvedEvent, found: CarvedRow) -> None:
        """Note a row of `event`."""
        self._events.append((event.number, event.sequence, found.rank, found.place, found.cell.offset))
        if len(self._events) >= _ROWS_AT_ONCE:
            self._write()

    def note_stream(self, found: CarvedRow) -> None:
        """Note a row of `stream`. Of several images of a row the highest values count."""
        _, name, lane, is_open, head, settled, _, _, stored, *others = found.cell.values
        numbers = [int(str(each)) for each in (head, settled, stored, others[3], others[4], others[8])]
        head, settled, stored, settled_events, quarantined, dropped = numbers
        former = self._former.get(found.cell.rowid)
        if former is None:
            purged = settled if found.rank <= 1 else 0
            former = self._former[found.cell.rowid] = FormerStream(str(name), Lane(str(lane)), 0, 0, purged)
        elif former.stream != name:
            self.contradicted = True
            return
        if head != stored or (is_open and not settled_events <= settled <= settled_events + quarantined + dropped):
            self.contradicted = True
        former.head, former.settled = max(former.head, min(head, stored)), max(former.settled, settled)

    def numbers(self) -> list[int]:
        """Return the numbers of all streams."""
        self._write()
        return sorted({row[0] for row in self._connection.execute("SELECT DISTINCT stream FROM found")} | self._former.keys())

    def stream(self, number: int, carving: Carving) -> tuple[FormerStream | None, str]:
        """Return what the row of a stream says, corrected where its first events contradict it, and the stream's name."""
        former = self._former.get(number)
        others = {each.stream for each in self._former.values() if each is not former}
        rows = (replay for rank, place, replay in self._readable(number, 0, carving) if rank <= 1 and replay.sequence == place)
        known = [each for each in islice(rows, _WITNESSES) if each.stream not in others]  # not of a row with a damaged number
        if not known:
            return former, former.stream if former else ""
        ((name, _),) = Counter(each.stream for each in known).most_common(1)
        if former is not None:
            first = next(each for each in known if each.stream == name)
            if first.sequence <= former.purged:
                self.contradicted, former.settled = True, first.first - 1
            if name != former.stream:
                self.contradicted, former.stream = True, name
        return former, name

    def in_order(self, number: int, name: str, first: int, carving: Carving, strays: list[Replay]) -> Iterator[Replay]:
        """Yield the readable events of a stream from `first` on, each once. Adds those with a damaged place to `strays`."""
        taken = 0
        for rank, sequence, replay in self._readable(number, first, carving):
            if replay.sequence == sequence and replay.stream == name:
                if sequence != taken:
                    taken = sequence
                    yield replay
            elif rank == 0:  # the place is damaged, but the event is readable
                strays.append(replay)

    def _readable(self, number: int, first: int, carving: Carving) -> Iterator[tuple[int, int, Replay]]:
        """Yield rank, sequence and event of each readable row of a stream from `first` on, in the order of sequences."""
        rows = self._connection.execute(
            "SELECT sequence, rank, place, offset FROM found WHERE stream = ? AND sequence >= ? ORDER BY sequence, rank, rowid",
            (number, first),
        )
        for sequence, rank, place, offset in rows:
            try:
                yield rank, sequence, Replay(unpack_body(carving.body(place, offset)))
            except (ValueError, IndexError, AssertionError, Poison):
                continue

    def _write(self) -> None:
        self._connection.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?)", self._events)
        self._events.clear()
