"""Committed rows on the event loop, for an uplink that has sent all earlier ones: it then need not ask the writer's thread."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fogline_edge.outbox.rows.streams import EventRecord

MAX_BYTES = 1024 * 1024
"""The most bytes of bodies that one stream keeps here. Beyond, the uplink reads from the file again."""


@dataclass(slots=True)
class _Followed:
    """The rows of one stream behind sequence `last`."""

    last: int
    rows: deque[EventRecord] = field(default_factory=deque)
    size: int = 0


class LiveRows:
    """The rows behind the last read of each stream, as long as the writer passes on every new one."""

    def __init__(self) -> None:
        self._streams: dict[str, _Followed] = {}

    def follow(self, stream: str, last: int) -> None:
        """Note that a read has reached the end of the stream: the writer passes on the rows behind `last`."""
        self._streams[stream] = _Followed(last)

    def leave(self, stream: str) -> None:
        """Forget the rows of a stream: the next read asks the writer."""
        self._streams.pop(stream, None)

    def clear(self) -> None:
        """Forget the rows of all streams."""
        self._streams.clear()

    def add(self, stream: str, rows: Sequence[EventRecord]) -> bool:
        """Keep the next rows of a stream. Returns False if it is not followed, or not any more because they are too many."""
        if (followed := self._streams.get(stream)) is None:
            return False
        followed.rows.extend(rows)
        followed.size += sum(len(row.body) for row in rows)
        if followed.size > MAX_BYTES:
            self.leave(stream)
        return followed.size <= MAX_BYTES

    def fills_batch(self, stream: str, events: int, size: int) -> bool:
        """Return True if at least so many rows, or so many bytes of bodies, are here, or if the writer has to be asked."""
        followed = self._streams.get(stream)
        return followed is None or len(followed.rows) >= events or followed.size >= size

    def take(self, stream: str, after: int, limit: int, limit_bytes: int | None) -> list[EventRecord] | None:
        """Return the rows above `after`, an empty list if there are none, or None if the writer has to be asked."""
        followed = self._streams.get(stream)
        if followed is None or followed.last != after:
            self.leave(stream)
            return None
        rows, taken, total = followed.rows, list[EventRecord](), 0
        while rows and len(taken) < limit:
            size = len(rows[0].body)
            total += size + 1
            if taken and limit_bytes is not None and total > limit_bytes:
                break
            taken.append(rows.popleft())
            followed.size -= size
        if taken:
            followed.last = taken[-1].sequence
        return taken
