"""Evidence that clients received their PUBACKs, across their connections: pure, and in memory only.

A PUBLISH at QoS 1 with DUP set is a retransmission only if the PUBACK of its packet id's last message may be lost. Otherwise,
if a client always uses one packet id and one payload, and a first PUBLISH never arrives, its retransmission would be lost.

| the last message of this packet id, at this device | a PUBLISH with DUP set is |
|---|---|
| was not acknowledged, or its PUBACK never left the socket's send queue | a retransmission |
| its connection ended within 5 s of the PUBACK, and the client reconnects within 60 s | a retransmission |
| the send queue was empty, and the client sent bytes 5 s or more after the PUBACK, or DISCONNECT | a new message |
| the send queue was empty, and neither holds | in doubt: stored, and it names the event that it may repeat |
| the packet id was used since, by any packet without DUP | a new message |
| belongs to an earlier run of the gateway | a retransmission, by the outbox |

An empty send queue means that the peer's TCP has the PUBACK. The peer may be a proxy, so this alone proves nothing.
"""

from collections.abc import Iterable
from math import inf

from fogline.events.identity import AckDelivery
from fogline_edge.adapters.mqtt.hono.intake import ClientKey
from fogline_edge.adapters.mqtt.session.ack_order import PendingAck

DELIVERED_AFTER_S = 5.0
"""Bytes that arrive so long after a PUBACK were sent after it: longer than a round trip through any proxy."""
RECONNECT_S = 60.0
"""The time in which a client that missed a PUBACK reconnects and sends again."""
MAX_OF_CLIENT = 8192
MAX_UNPROVEN = 32_768
"""The most messages remembered, of one client and of all. The retransmission of a forgotten one is stored as a new event."""


class ClientPubacks:
    """Messages of one client whose PUBACKs are not proven to be delivered. `connections`: its open connections."""

    __slots__ = ("_all", "connections", "last")

    def __init__(self, everyone: "PubackDelivery") -> None:
        self.connections = 0
        self.last: dict[int, PendingAck] = {}
        self._all = everyone

    def use(self, pending: PendingAck, device: str) -> None:
        """Remember a message of `device` as the last one of its packet id."""
        pending.device = device
        last, packet_id = self.last, pending.packet_id
        self._all.count += last.pop(packet_id, None) is None
        last[packet_id] = pending
        if len(last) > MAX_OF_CLIENT:
            self.free(next(iter(last)))
        elif self._all.count > MAX_UNPROVEN:
            self._all.shrink()

    def free(self, packet_id: int) -> None:
        """Forget the packet id's last message: the client has used the packet id for another packet."""
        if self.last.pop(packet_id, None) is not None:
            self._all.count -= 1

    def delivered(self, messages: Iterable[PendingAck]) -> None:
        """Forget these messages: the client has their PUBACKs."""
        for each in messages:
            if self.last.get(each.packet_id) is each:
                self.free(each.packet_id)

    def delivery(self, packet_id: int, device: str, now: float) -> AckDelivery:
        """Return the evidence about the PUBACK of `device`'s last message under the packet id."""
        pending = self.last.get(packet_id)
        if pending is None or pending.device != device:
            return AckDelivery.PROVEN
        return AckDelivery.UNPROVEN if now <= pending.resend_until else AckDelivery.DOUBTFUL


class PubackDelivery:
    """The unproven PUBACKs of all clients of a listener. `count`: number of messages remembered."""

    def __init__(self) -> None:
        self.count = 0
        self._clients: dict[ClientKey, ClientPubacks] = {}

    def open(self, client: ClientKey) -> ClientPubacks:
        """Add a connection of a client, whose former connection may still be open."""
        found = self._clients.setdefault(client, ClientPubacks(self))
        found.connections += 1
        return found

    def close(self, client: ClientKey) -> None:
        """Remove a connection of a client."""
        found = self._clients[client]
        found.connections -= 1
        if not found.connections:
            del self._clients[client]
            if found.last:
                self._clients[client] = found  # moved to the end: `shrink` forgets the client that left first

    def shrink(self) -> None:
        """Forget a quarter: clients that are away, the longest first, then the older half of every client's messages."""
        for client, each in list(self._clients.items()):
            if not each.connections:
                self.count -= len(each.last)
                del self._clients[client]
                if self.count <= MAX_UNPROVEN * 3 // 4:
                    return
        for each in self._clients.values():
            for packet_id in list(each.last)[: (len(each.last) + 1) // 2]:
                each.free(packet_id)


def connection_ended(unproven: Iterable[tuple[float, list[PendingAck]]], now: float, *, drained: bool) -> None:
    """Set `resend_until` of the unproven messages of an ended connection. `drained`: its send queue was empty."""
    for written, messages in unproven:
        until = inf if not drained else now + RECONNECT_S if now - written < DELIVERED_AFTER_S else -inf
        for each in messages:
            each.resend_until = until
