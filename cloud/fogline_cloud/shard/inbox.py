"""The queue between a bridge's event loop and the thread of a shard."""

import queue
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fogline.gateway.hello import Mark
from fogline_cloud.shard.owned_shard import ShardWork


@dataclass(slots=True)
class MarksQuery:
    """A gateway's hello asks for the high-water marks of its streams. `answer` is called on the shard's thread."""

    gateway: str
    streams: Sequence[str]
    answer: Callable[[list[Mark]], None]
    epoch: str = ""


@dataclass(slots=True)
class Stop:
    """Wakes the thread, so that it ends."""


Item = ShardWork | MarksQuery | Stop


class ShardInbox:
    """Work and queries in order of arrival. Only `put` is thread-safe. `deferred` queries wait for the transaction's end."""

    def __init__(self) -> None:
        self.deferred: deque[MarksQuery] = deque()
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def put(self, item: Item) -> None:
        """Add an item."""
        self._queue.put(item)

    def get(self, limit_s: float | None) -> Item | None:
        """Return the next item, or None if `limit_s` seconds pass first. No limit if it is None."""
        try:
            return self._queue.get(block=limit_s != 0, timeout=limit_s)
        except queue.Empty:
            return None

    def take_work(self) -> list[ShardWork]:
        """Remove and return the work that still waits when the thread ends."""
        work = []
        while (item := self.get(0)) is not None:
            if not isinstance(item, MarksQuery | Stop):
                work.append(item)
        return work
