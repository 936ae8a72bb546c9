"""What of one session's commands is under way, by packet id (5: 2.2.1): pure."""

from collections.abc import Sequence
from enum import IntEnum

import msgspec

from fogline.command import Deadline
from fogline_edge.adapters.mqtt.packets import Publish

MAX_KEPT_BYTES = 65_536
"""How much of commands under way is kept for one session; beyond, a command goes at QoS 1."""
_MAX_RETIRED = 256
_MAX_PACKET_ID = 65_535


class Phase(IntEnum):
    """How far a command is. `AGAIN`: was sent on a former connection. `ACCEPTED`, `RELEASED`: PUBREC came, PUBREL went."""

    WAITING = 0
    KEEPING = 1
    AGAIN = 2
    SENT = 3
    ACCEPTED = 4
    RELEASED = 5


class Flight(msgspec.Struct, array_like=True):
    """One command as the PUBLISH that carries it."""

    command_id: str
    device: str
    deadline: Deadline
    publish: Publish
    phase: Phase = Phase.WAITING


class Flights:
    """PUBLISHes without their end. `by_number`: in their order; `retired`: packet ids that must not be used again."""

    def __init__(self, by_number: dict[int, Flight] | None = None, retired: Sequence[int] = ()) -> None:
        self.by_number = by_number or {}
        self.retired = dict.fromkeys(retired)
        self._last = max((*self.by_number, *self.retired), default=0)

    def number_of(self, command_id: str) -> int | None:
        """The packet id that carries a command."""
        return next((number for number, each in self.by_number.items() if each.command_id == command_id), None)

    def add(self, flight: Flight) -> None:
        """Give it a packet id that no other has (5: 2.2.1)."""
        while True:
            self._last = self._last % _MAX_PACKET_ID + 1
            if self._last not in self.by_number and self._last not in self.retired:
                break
        flight.publish = msgspec.structs.replace(flight.publish, packet_id=self._last)
        flight.phase = Phase.KEEPING
        self.by_number[self._last] = flight

    def retire(self, number: int) -> Flight:
        """Give up one that the client may have half: its packet id would be mistaken for it."""
        self.retired[number] = None
        if len(self.retired) > _MAX_RETIRED:
            del self.retired[next(iter(self.retired))]
        return self.by_number.pop(number)

    def kept(self) -> dict[int, Flight]:
        """Those that outlive their connection."""
        return {number: each for number, each in self.by_number.items() if each.publish.qos == 2}

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may be kept."""
        return sum(len(each.publish.payload) for each in self.kept().values()) + size_bytes <= MAX_KEPT_BYTES

    @property
    def busy(self) -> int:
        """How many count against the client's receive maximum."""
        return sum(each.phase is not Phase.AGAIN for each in self.by_number.values())
