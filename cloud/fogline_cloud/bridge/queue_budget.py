"""The bytes of messages that wait for a shard, and the back-pressure that follows from them.

There is a limit for each connection and one for the process. Above half of either, a message that is settled brings its sender
no new credit. At the limit, nothing more is read from the connection's socket. The credit follows as soon as there is room
again. Nothing is discarded: a message is taken, or it stays with its sender.
"""

from dataclasses import dataclass, field
from typing import Protocol

from fogline.amqp.events import Link


class Tap(Protocol):
    """A connection, as far as back-pressure acts on it."""

    def grant(self, link: Link, credit: int) -> None:
        """Let the peer send `credit` more messages."""

    def pause_reading(self) -> None:
        """Leave what the peer sends in the socket."""

    def resume_reading(self) -> None:
        """Read again."""


@dataclass(eq=False, slots=True)
class Inflow:
    """What waits of one connection. `owed`: credit that its links are to get once there is room."""

    tap: Tap
    held_bytes: int = 0
    paused: bool = False
    owed: dict[Link, int] = field(default_factory=dict)


class QueueBudget:
    """The budget of one process. All methods run on the loop."""

    def __init__(self, connection_bytes: int, process_bytes: int) -> None:
        self.held_bytes = 0
        self._connection_bytes = connection_bytes
        self._process_bytes = process_bytes
        self._waiting: dict[Inflow, None] = {}

    def take(self, inflow: Inflow, size_bytes: int) -> None:
        """A message waits from now on."""
        inflow.held_bytes += size_bytes
        self.held_bytes += size_bytes
        if not inflow.paused and self._is_full(inflow):
            inflow.paused = True
            inflow.tap.pause_reading()
            self._waiting[inflow] = None

    def give_back(self, inflow: Inflow, size_bytes: int, link: Link) -> None:
        """A message of a link is settled."""
        inflow.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        inflow.owed[link] = inflow.owed.get(link, 0) + 1
        self._waiting[inflow] = None
        self._serve()

    def forget(self, inflow: Inflow) -> None:
        """The connection is gone. What it left in the queue is counted until it is settled."""
        inflow.owed.clear()
        self._waiting.pop(inflow, None)

    def _serve(self) -> None:
        """Let go on who may, those first who have waited longest."""
        for inflow in list(self._waiting):
            if inflow.paused and not self._is_full(inflow):
                inflow.paused = False
                inflow.tap.resume_reading()
            if self._has_room(inflow):
                self._waiting.pop(inflow, None)  # a grant below may have served it already
                owed, inflow.owed = inflow.owed, {}
                for link, credit in owed.items():
                    inflow.tap.grant(link, credit)

    def _is_full(self, inflow: Inflow) -> bool:
        return inflow.held_bytes >= self._connection_bytes or self.held_bytes >= self._process_bytes

    def _has_room(self, inflow: Inflow) -> bool:
        return 2 * inflow.held_bytes < self._connection_bytes and 2 * self.held_bytes < self._process_bytes
