"""A session at the broker: acknowledges in order, and recognises messages that may be retransmissions. Pure.

After a reconnect a broker sets DUP on every message that it sends again, even if the first copy never arrived. Messages are
acknowledged in order, and only a window of them is in flight (a few times our Receive Maximum: Mosquitto 2 counts anew at each
reconnect). So a message with DUP whose packet id is not among the last `WINDOW` messages is new, even if its content is not.
After a restart of the gateway the outbox decides by packet id and content until `WINDOW` messages have arrived.
"""

from collections import deque
from dataclasses import dataclass

from fogline.events.identity import Retransmission

WINDOW = 16_384
"""Far more than the messages in flight, and far fewer than the packet ids."""


@dataclass(slots=True)
class BrokerAck:
    """A message to acknowledge. `settled`: its arrival is durable, or there is nothing to store."""

    packet_id: int
    settled: bool = False


class Acks:
    """The unacknowledged messages of one connection, acknowledged in the order of their arrival (5: 4.6 [MQTT-4.6.0-2])."""

    def __init__(self) -> None:
        self._open: deque[BrokerAck] = deque()

    def add(self, packet_id: int) -> BrokerAck:
        """Add a received message."""
        ack = BrokerAck(packet_id)
        self._open.append(ack)
        return ack

    def settle(self, ack: BrokerAck) -> list[int]:
        """Settle a message. Returns the packet ids to acknowledge now, in this order."""
        ack.settled = True
        due = []
        while self._open and self._open[0].settled:
            due.append(self._open.popleft().packet_id)
        return due


class BrokerSession:
    """One session. `slot`: its unique name, because each counts packet ids anew. `fresh`: it is no older than this object."""

    def __init__(self, slot: bytes, *, fresh: bool) -> None:
        self._slot = slot
        self._fresh = fresh
        self._recent: dict[int, None] = {}

    def received(self, packet_id: int, *, dup: bool) -> Retransmission:
        """Note a message, and return the evidence about it as a retransmission."""
        known = self._fresh or len(self._recent) >= WINDOW
        again = dup and (packet_id in self._recent or not known)
        self._recent.pop(packet_id, None)
        self._recent[packet_id] = None
        if len(self._recent) > WINDOW:
            del self._recent[next(iter(self._recent))]
        return Retransmission(self._slot, again, number=packet_id)
