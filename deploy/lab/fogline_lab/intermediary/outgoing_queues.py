"""Messages that leave over the links of one connection, interleaved chunk by chunk."""

from collections import deque
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 8 * 1024


@dataclass(eq=False)
class Outgoing:
    """One message that leaves over a link. `data` may still grow until `complete`.

    `settled`: its sender wants no outcome. `native`: proton's delivery, once begun.
    """

    link: Any
    tag: str
    data: bytearray
    complete: bool = True
    settled: bool = False
    aborted: bool = False
    sent: int = 0
    native: Any = None


class OutgoingQueues:
    """A queue for each sending link of one connection. A message leaves as its link's credit allows."""

    def __init__(self) -> None:
        self._queues: dict[Any, deque[Outgoing]] = {}

    def send(self, outgoing: Outgoing) -> None:
        """Queue a message on its link."""
        self._queues.setdefault(outgoing.link, deque()).append(outgoing)

    def waits(self, link: Any) -> bool:
        """Return True if not all bytes of a link's messages have been framed."""
        return bool(self._queues.get(link))

    def drop(self, link: Any) -> list[Outgoing]:
        """Forget a link. Returns its messages of which not all bytes have been framed."""
        return list(self._queues.pop(link, ()))

    def clear(self) -> None:
        """Forget everything."""
        self._queues.clear()

    def hand_over(self) -> bool:
        """Give proton one chunk of each link that has some. Returns False if there was none."""
        moved = False
        for link, queue in list(self._queues.items()):
            if queue and link.session.outgoing_bytes < CHUNK_BYTES:
                moved |= _hand_over(link, queue)
        return moved


def _hand_over(link: Any, queue: deque[Outgoing]) -> bool:
    first = queue[0]
    if first.aborted:
        queue.popleft()
        if first.native is not None:
            first.native.abort()
        return True
    if first.native is None:
        if link.credit <= 0 or not (first.data or first.complete):
            return False
        first.native = link.delivery(first.tag)
    chunk = bytes(first.data[first.sent : first.sent + CHUNK_BYTES])
    if chunk:
        link.send(chunk)
        first.sent += len(chunk)
    is_whole = first.complete and first.sent == len(first.data)
    if is_whole:
        queue.popleft()
        link.advance()
        if first.settled:
            first.native.settle()
    return bool(chunk) or is_whole
