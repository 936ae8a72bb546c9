"""PUBACKs and PUBRECs of one connection, in the order of their PUBLISHes (5: 4.6), each after its commit: pure."""

from collections import deque
from math import inf

from fogline_edge.adapters.mqtt.protocol.packets import Ack
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType

_PUBACK = Ack(kind=PacketType.PUBACK, packet_id=0).encode(V5)[:2]  # of a success: 3.1.1 and 5 agree (3.4)


class PendingAck:
    """One message on its way to its commit. `packet_id` is 0 at QoS 0. `kind`: PUBACK, or PUBREC at QoS 2.

    `due`: its acknowledgement was sent, or is next. `resend_until`: time until which a copy with DUP is a retransmission.
    """

    __slots__ = ("code", "committed", "device", "due", "kind", "packet_id", "resend_until", "size")

    def __init__(self, packet_id: int, code: int = 0, size: int = 0, kind: PacketType = PacketType.PUBACK) -> None:
        self.packet_id = packet_id
        self.code = code
        self.size = size
        self.kind = kind
        self.committed = False
        self.due = False
        self.device = ""
        self.resend_until = inf


class AckOrder:
    """Messages of one connection that wait for their commit.

    `qos0`: number of uncommitted QoS 0 messages. `qos2`: number without their PUBREC. `size`: bytes of uncommitted payloads.
    `unproven`: PUBACKs that were written but not proven to be delivered, with the time of the write.
    """

    __slots__ = ("_acknowledged", "_due", "_unacknowledged", "qos0", "qos2", "size", "unproven", "version")

    def __init__(self) -> None:
        self.version = V5
        self._unacknowledged: deque[PendingAck] = deque()
        self.qos0 = 0
        self.qos2 = 0
        self.size = 0
        self._due: list[bytes] = []
        self._acknowledged: list[PendingAck] = []
        self.unproven: deque[tuple[float, list[PendingAck]]] = deque()

    @property
    def unacknowledged(self) -> int:
        """Number of QoS 1 and 2 messages without their PUBACK or PUBREC."""
        return len(self._unacknowledged)

    def add(self, packet_id: int, code: int, size: int, kind: PacketType = PacketType.PUBACK) -> PendingAck:
        """Add a message of `size` bytes; `code` is the reason code of its PUBACK or PUBREC (5 only)."""
        pending = PendingAck(packet_id, code, size, kind)
        self.size += size
        if packet_id:
            self._unacknowledged.append(pending)
            self.qos2 += kind is PacketType.PUBREC
        else:
            self.qos0 += 1
        return pending

    def committed(self, pending: PendingAck) -> None:
        """Mark a message as durable. Its PUBACK or PUBREC is due once all earlier messages are durable."""
        pending.committed = True
        self.size -= pending.size
        if not pending.packet_id:
            self.qos0 -= 1
            return
        unacknowledged = self._unacknowledged
        while unacknowledged and unacknowledged[0].committed:
            first = unacknowledged.popleft()
            first.due = True
            if first.kind is PacketType.PUBACK:
                self._acknowledged.append(first)
            else:
                self.qos2 -= 1
            if first.kind is PacketType.PUBACK and not first.code:
                self._due.append(_PUBACK + first.packet_id.to_bytes(2))  # nearly every one: without the cost of `encode`
                continue
            self._due.append(Ack(kind=first.kind, packet_id=first.packet_id, code=first.code).encode(self.version))

    def unreceived(self, packet_id: int) -> PendingAck | None:
        """Return the QoS 2 message of this packet id if its PUBREC is not due yet."""
        same_id = (each for each in self._unacknowledged if each.packet_id == packet_id and each.kind is PacketType.PUBREC)
        return next(same_id, None)

    def take(self) -> tuple[bytes, int]:
        """Return the bytes and the number of the PUBACKs and PUBRECs that are due. They are not due again."""
        due, self._due = self._due, []
        return b"".join(due), len(due)

    def written(self, now: float) -> None:
        """Note that the bytes from `take` were written to the socket at `now`."""
        if self._acknowledged:
            self.unproven.append((now, self._acknowledged))
            self._acknowledged = []

    def written_since(self, seconds: float, now: float) -> bool:
        """Return True if an unproven PUBACK was written at least `seconds` ago."""
        return bool(self.unproven) and now - self.unproven[0][0] >= seconds

    def delivered(self, seconds: float, now: float) -> list[PendingAck]:
        """Return the messages whose PUBACKs were written at least `seconds` ago: their delivery is now proven."""
        found: list[PendingAck] = []
        while self.written_since(seconds, now):
            found += self.unproven.popleft()[1]
        return found
