"""Acknowledgements in the order of the messages (5: 4.6 [MQTT-4.6.0-2]), whatever the order in which they are settled. Pure.

That order is also what lets `session` tell a resend from a packet id that is used again.
"""

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Ticket:
    """A message that will be acknowledged."""

    packet_id: int
    settled: bool = False


class Acks:
    """The messages of one connection that are not acknowledged, in the order in which they came."""

    def __init__(self) -> None:
        self._open: deque[Ticket] = deque()

    def take(self, packet_id: int) -> Ticket:
        """A message came."""
        ticket = Ticket(packet_id)
        self._open.append(ticket)
        return ticket

    def settle(self, ticket: Ticket) -> list[int]:
        """`ticket` may be acknowledged; returns the packet ids to acknowledge now, in this order."""
        ticket.settled = True
        due = []
        while self._open and self._open[0].settled:
            due.append(self._open.popleft().packet_id)
        return due
