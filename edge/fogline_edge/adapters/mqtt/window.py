"""What of one connection waits for its commit, and the PUBACKs in the order of their PUBLISHes (5: 4.6): pure."""

from collections import deque

from fogline_edge.adapters.mqtt.packets import Answer
from fogline_edge.adapters.mqtt.wire import V5, Kind


class Ticket:
    """One message that was handed on. `packet_id` 0: nobody waits for its acknowledgement (QoS 0, a will)."""

    __slots__ = ("code", "committed", "packet_id")

    def __init__(self, packet_id: int, code: int = 0) -> None:
        self.packet_id = packet_id
        self.code = code
        self.committed = False


class Window:
    """The messages in flight of one connection."""

    __slots__ = ("_count", "_due", "_numbered", "_quiet", "version")

    def __init__(self) -> None:
        self.version = V5
        self._numbered: deque[Ticket] = deque()
        self._quiet = 0
        self._due: list[bytes] = []
        self._count = 0

    @property
    def numbered(self) -> int:
        """QoS 1 messages without their PUBACK."""
        return len(self._numbered)

    @property
    def quiet(self) -> int:
        """QoS 0 messages that are not committed."""
        return self._quiet

    def admit(self, packet_id: int, code: int) -> Ticket:
        """A message was received; `code` is the reason code that its PUBACK will carry (5 only)."""
        ticket = Ticket(packet_id, code)
        if packet_id:
            self._numbered.append(ticket)
        else:
            self._quiet += 1
        return ticket

    def committed(self, ticket: Ticket) -> None:
        """A message is durable. Its PUBACK is due once those of all before it are."""
        ticket.committed = True
        if not ticket.packet_id:
            self._quiet -= 1
            return
        numbered = self._numbered
        while numbered and numbered[0].committed:
            first = numbered.popleft()
            self._due.append(Answer(kind=Kind.PUBACK, packet_id=first.packet_id, code=first.code).encode(self.version))

    def take(self) -> tuple[bytes, int]:
        """The PUBACKs that are due, as bytes, and how many they are. They are not due again."""
        if not self._due:
            return b"", 0
        due, self._due = self._due, []
        return b"".join(due), len(due)
