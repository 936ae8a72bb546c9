"""What of one connection waits for its commit, and PUBACKs and PUBRECs in the order of their PUBLISHes (5: 4.6): pure."""

from collections import deque
from math import inf

from fogline_edge.adapters.mqtt.packets import Answer
from fogline_edge.adapters.mqtt.wire import V5, Kind

_PUBACK = Answer(kind=Kind.PUBACK, packet_id=0).encode(V5)[:2]
"""How every PUBACK of success begins (3.4: without reason code and properties it is the same in 3.1.1 and 5)."""


class Ticket:
    """One message that was handed on. `packet_id` 0: nobody waits for its acknowledgement (QoS 0, a will).

    `due`: its acknowledgement was sent, or is next. `device`: whose message it is. `resend_until`: until when, in the loop's
    time, a copy with DUP set is taken for a resend.
    """

    __slots__ = ("code", "committed", "device", "due", "packet_id", "resend_until")
    kind = Kind.PUBACK

    def __init__(self, packet_id: int, code: int = 0) -> None:
        self.packet_id = packet_id
        self.code = code
        self.committed = False
        self.due = False
        self.device = ""
        self.resend_until = inf


class ReceivedTicket(Ticket):
    """One at QoS 2: a PUBREC acknowledges it."""

    __slots__ = ()
    kind = Kind.PUBREC


class Window:
    """The messages in flight of one connection. `quiet`: QoS 0 messages that are not committed.

    `unreceived_count`: QoS 2 messages without their PUBREC. `unproven`: when PUBACKs were written, and of which messages,
    until they are known to be delivered.
    """

    __slots__ = ("_acknowledged", "_due", "_numbered", "quiet", "unproven", "unreceived_count", "version")

    def __init__(self) -> None:
        self.version = V5
        self._numbered: deque[Ticket] = deque()
        self.quiet = 0
        self.unreceived_count = 0
        self._due: list[bytes] = []
        self._acknowledged: list[Ticket] = []
        self.unproven: deque[tuple[float, list[Ticket]]] = deque()

    @property
    def numbered(self) -> int:
        """QoS 1 and 2 messages without their PUBACK or PUBREC."""
        return len(self._numbered)

    def admit(self, packet_id: int, code: int) -> Ticket:
        """A message was received; `code` is the reason code that its PUBACK will carry (5 only)."""
        ticket = Ticket(packet_id, code)
        if packet_id:
            self._numbered.append(ticket)
        else:
            self.quiet += 1
        return ticket

    def admit_received(self, packet_id: int, code: int) -> Ticket:
        """The same at QoS 2: its PUBREC takes its place in the order."""
        ticket = ReceivedTicket(packet_id, code)
        self._numbered.append(ticket)
        self.unreceived_count += 1
        return ticket

    def committed(self, ticket: Ticket) -> None:
        """A message is durable. Its PUBACK or PUBREC is due once those of all before it are."""
        ticket.committed = True
        if not ticket.packet_id:
            self.quiet -= 1
            return
        numbered = self._numbered
        while numbered and numbered[0].committed:
            first = numbered.popleft()
            first.due = True
            if first.kind is Kind.PUBACK:
                self._acknowledged.append(first)
            else:
                self.unreceived_count -= 1
            if first.kind is Kind.PUBACK and not first.code:
                self._due.append(_PUBACK + first.packet_id.to_bytes(2))  # what nearly all of them are
                continue
            self._due.append(Answer(kind=first.kind, packet_id=first.packet_id, code=first.code).encode(self.version))

    def unreceived(self, packet_id: int) -> Ticket | None:
        """The QoS 2 message of this packet id whose PUBREC is not due yet."""
        return next((each for each in self._numbered if each.packet_id == packet_id and each.kind is Kind.PUBREC), None)

    def take(self) -> tuple[bytes, int]:
        """The PUBACKs and PUBRECs that are due, as bytes, and how many they are. They are not due again."""
        if not self._due:
            return b"", 0
        due, self._due = self._due, []
        return b"".join(due), len(due)

    def written(self, now: float) -> None:
        """What `take` returned is on its way."""
        if self._acknowledged:
            self.unproven.append((now, self._acknowledged))
            self._acknowledged = []

    def written_since(self, seconds: float, now: float) -> bool:
        """Whether PUBACKs are not known to be delivered that were written `seconds` ago or before."""
        return bool(self.unproven) and now - self.unproven[0][0] >= seconds

    def delivered(self, seconds: float, now: float) -> list[Ticket]:
        """The client has what was written `seconds` ago or before: the messages that it acknowledged."""
        found: list[Ticket] = []
        while self.written_since(seconds, now):
            found += self.unproven.popleft()[1]
        return found
