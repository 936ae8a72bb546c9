"""The latest states of commands and the latest readings, for streams of server-sent events. Memory is that of one ring for all.

Each client has a place in the ring and no queue of its own. A client that is too slow, or comes back too late, gets the event
`missed` and goes on with the oldest item.
"""

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass

MAX_ITEMS = 10_000
MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FeedItem:
    """One event: `kind` is `command` or `reading`, `data` is JSON on one line. `command`: the name of the command, or ""."""

    number: int
    kind: str
    device: str
    command: str
    data: bytes


class Feed:
    """The ring of the latest items. Used on the loop."""

    def __init__(self) -> None:
        self._epoch = secrets.token_hex(4)
        self._items: deque[FeedItem] = deque()
        self._bytes = 0
        self._last = 0
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopped = False

    @property
    def end(self) -> int:
        """The number of the newest item."""
        return self._last

    def id_of(self, number: int) -> str:
        """Return the id of an item, as clients see it."""
        return f"{self._epoch}-{number}"

    def number_of(self, event_id: str) -> int | None:
        """Return the number of the last item that a client has, None if this process did not send it."""
        epoch, _, number = event_id.partition("-")
        is_own = epoch == self._epoch and number.isascii() and number.isdecimal() and len(number) < 20
        return int(number) if is_own and int(number) <= self._last else None

    def put(self, kind: str, device: str, command: str, data: bytes) -> None:
        """Add an item."""
        self._last += 1
        self._items.append(FeedItem(self._last, kind, device, command, data))
        self._bytes += len(data)
        while len(self._items) > MAX_ITEMS or self._bytes > MAX_BYTES:
            self._bytes -= len(self._items.popleft().data)
        self._wake()

    def after(self, number: int) -> tuple[list[FeedItem], bool]:
        """Return the next items behind a number, at most some hundred, and True if items between were forgotten."""
        if not self._items or number >= self._last:
            return [], False
        first = self._items[0].number
        begin = max(0, number + 1 - first)
        found = [self._items[index] for index in range(begin, min(begin + 200, len(self._items)))]
        return found, number + 1 < first

    async def change(self, limit_s: float) -> bool:
        """Wait until there is a new item, but no longer than `limit_s`. Returns False once the process stops."""
        if not self._stopped:
            await asyncio.wait([self._changed], timeout=limit_s)
        return not self._stopped

    def stop(self) -> None:
        """End all streams."""
        self._stopped = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)
