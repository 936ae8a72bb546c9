"""Limits on the bytes of messages that are not settled yet, and the back-pressure that follows from them. Pure.

Above half of a limit, a settled message brings its sender no new credit; at the limit, the bridge stops reading the socket.
"""

from dataclasses import dataclass, field
from typing import Protocol

from fogline.amqp.events import Link


class CreditGate(Protocol):
    """The part of a connection that back-pressure acts on."""

    def grant(self, link: Link, credit: int) -> None:
        """Let the peer send `credit` more messages."""

    def pause_reading(self) -> None:
        """Stop reading the socket."""

    def resume_reading(self) -> None:
        """Read the socket again."""


@dataclass(eq=False, slots=True)
class QueuedBytes:
    """The bytes of one connection that wait. `owed_credit` is the credit that its links get when there is room."""

    connection: CreditGate
    held_bytes: int = 0
    paused: bool = False
    owed_credit: dict[Link, int] = field(default_factory=dict)


class QueueBudget:
    """The budget of one process. All methods run on the loop."""

    def __init__(self, connection_bytes: int, process_bytes: int) -> None:
        self.held_bytes = 0
        self._connection_bytes = connection_bytes
        self._process_bytes = process_bytes
        self._waiting: dict[QueuedBytes, None] = {}

    def take(self, queued: QueuedBytes, size_bytes: int) -> None:
        """Count a message that begins to wait."""
        queued.held_bytes += size_bytes
        self.held_bytes += size_bytes
        if not queued.paused and self._is_full(queued):
            queued.paused = True
            queued.connection.pause_reading()
            self._waiting[queued] = None

    def give_back(self, queued: QueuedBytes, size_bytes: int) -> None:
        """Stop counting a message that was settled."""
        queued.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        self._release()

    def owe(self, queued: QueuedBytes, link: Link) -> None:
        """Give a link one credit when there is room."""
        queued.owed_credit[link] = queued.owed_credit.get(link, 0) + 1
        self._waiting[queued] = None
        self._release()

    def forget(self, queued: QueuedBytes) -> None:
        """Forget the credit of a connection that has ended. Its messages count until they are settled."""
        queued.owed_credit.clear()
        self._waiting.pop(queued, None)

    def _release(self) -> None:
        """Resume reading and grant credit where there is room, to the longest waiting connections first."""
        for queued in list(self._waiting):
            if queued.paused and not self._is_full(queued):
                queued.paused = False
                queued.connection.resume_reading()
            if 2 * queued.held_bytes < self._connection_bytes and 2 * self.held_bytes < self._process_bytes:
                self._waiting.pop(queued, None)  # a grant below may have served it already
                owed, queued.owed_credit = queued.owed_credit, {}
                for link, credit in owed.items():
                    queued.connection.grant(link, credit)

    def _is_full(self, queued: QueuedBytes) -> bool:
        return queued.held_bytes >= self._connection_bytes or self.held_bytes >= self._process_bytes
