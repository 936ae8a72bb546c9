"""Selects the link whose bytes go onto the connection next. Pure: no sockets, no clock.

Proton frames bytes in the order in which it gets them, so it gets one chunk at a time, of the link that the scheduler selects.
Strict links come first, in their order. The others share by weight: each has a virtual time that advances by bytes / weight,
and the one furthest behind goes next, so none starves.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

Key = TypeVar("Key", bound=Hashable)
Token = TypeVar("Token", bound=Hashable)

CHUNK_BYTES = 8 * 1024


class Share(msgspec.Struct, frozen=True):
    """The precedence of a link: a `strict` one (0 first) goes before every weight; `None` shares by `weight`."""

    strict: int | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Chunk(Generic[Key, Token]):
    """The next bytes of a message. `first` and `last` mark the ends of the message."""

    link: Key
    token: Token
    data: memoryview
    first: bool
    last: bool


@dataclass(slots=True)
class _Queue(Generic[Key, Token]):
    link: Key
    share: Share
    waiting: deque[tuple[Token, memoryview]] = field(default_factory=deque)
    credit: int = 0
    sent: int = 0  # bytes of the first message that were returned as chunks
    virtual: float = 0.0

    @property
    def ready(self) -> bool:
        return bool(self.waiting) and (self.sent > 0 or self.credit > 0)


class Scheduler(Generic[Key, Token]):
    """A first-in, first-out queue of messages for each link."""

    def __init__(self, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._queues: dict[Key, _Queue[Key, Token]] = {}
        self._virtual = 0.0

    def add(self, link: Key, share: Share) -> None:
        """Add a link. It has no credit yet."""
        self._queues[link] = _Queue(link, share)

    def remove(self, link: Key) -> list[Token]:
        """Remove a link. Returns the tokens of its waiting messages."""
        queue = self._queues.pop(link, None)
        return [token for token, _ in queue.waiting] if queue else []

    def offer(self, link: Key, token: Token, message: bytes) -> None:
        """Queue one message, which is not empty, on a link that was added."""
        queue = self._queues[link]
        if not queue.waiting:
            queue.virtual = max(queue.virtual, self._virtual)  # an idle link earns no claim to earlier turns
        queue.waiting.append((token, memoryview(message)))

    def set_credit(self, link: Key, credit: int) -> None:
        """Set the number of messages that the receiver takes from now on."""
        if link in self._queues:
            self._queues[link].credit = credit

    def waiting(self, link: Key) -> int:
        """Return the number of the link's messages that were not returned whole as chunks."""
        return len(self._queues[link].waiting) if link in self._queues else 0

    def room(self, link: Key) -> int:
        """Return the credit of a link that no waiting message needs."""
        queue = self._queues.get(link)
        return 0 if queue is None else max(0, queue.credit - len(queue.waiting) + (queue.sent > 0))

    def next(self, may_send: Callable[[Key], bool] = lambda _: True) -> Chunk[Key, Token] | None:
        """Return the next chunk, of a link with a message, credit to begin it, and `may_send`; `None` if there is none."""
        ready = [queue for queue in self._queues.values() if queue.ready and may_send(queue.link)]
        return self._take(min(ready, key=_precedence)) if ready else None

    def _take(self, queue: _Queue[Key, Token]) -> Chunk[Key, Token]:
        token, message = queue.waiting[0]
        first = queue.sent == 0
        data = message[queue.sent : queue.sent + self._chunk_bytes]
        queue.sent += len(data)
        last = queue.sent == len(message)
        if first:
            queue.credit -= 1
        if last:
            queue.waiting.popleft()
            queue.sent = 0
        if queue.share.strict is None:
            self._virtual = queue.virtual
            queue.virtual += len(data) / queue.share.weight
        return Chunk(queue.link, token, data, first, last)


def _precedence(queue: _Queue[Key, Token]) -> tuple[int, float]:
    strict = queue.share.strict
    return (1_000_000, queue.virtual) if strict is None else (strict, 0.0)
