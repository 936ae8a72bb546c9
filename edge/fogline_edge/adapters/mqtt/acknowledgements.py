"""Delivery of PUBACKs to the clients, across their connections: pure, and in memory only.

A PUBLISH at QoS 1 with DUP set repeats the last message of its packet id only if the PUBACK of that message may be lost. A
client that uses one packet id and one payload again and again would otherwise lose a message: the first PUBLISH with it
never arrives, and the library's resend looks like a resend of the message before.

| the last message of this packet id, at this device | a PUBLISH with DUP set is |
|---|---|
| was not acknowledged, or the PUBACK never left the socket's send queue | a resend |
| its connection ended within 5 s of the PUBACK, and the client comes within 60 s of that | a resend |
| the send queue was empty, and the client sent something 5 s or more after the PUBACK, or DISCONNECT | a new message |
| the send queue was empty, and neither holds | in doubt: stored, and it names the event that it may repeat |
| the packet id has been used since without DUP, for whatever | a new message |
| is of an earlier run of the gateway | left to the outbox, for which it is a resend |

An empty send queue says that the peer's TCP has the PUBACK. The peer may be a proxy, so that alone proves nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable
from math import inf

from fogline.identity import AckDelivery
from fogline_edge.adapters.mqtt.window import Ticket

DELIVERED_AFTER_S = 5.0
"""What arrives so long after a PUBACK was sent after the client had it: longer than a round trip through any proxy."""
RECONNECT_S = 60.0
"""So soon a client that missed a PUBACK comes back and sends again."""
MAX_OF_CLIENT = 8192
MAX_UNPROVEN = 65_536
"""How many messages are remembered, of one client and of all. A resend of one that was forgotten is stored as a new event."""

Client = tuple[str, str]
"""User name and client id."""


class ClientAcks:
    """Messages of one client whose PUBACKs are not known to be delivered. `connections`: how many have this open."""

    __slots__ = ("_all", "connections", "last")

    def __init__(self, everyone: "Acknowledgements") -> None:
        self.connections = 0
        self.last: OrderedDict[int, Ticket] = OrderedDict()
        self._all = everyone

    def use(self, ticket: Ticket, device: str) -> None:
        """A message came under this ticket's packet id; it is `device`'s."""
        ticket.device = device
        last, packet_id = self.last, ticket.packet_id
        if packet_id in last:
            last.move_to_end(packet_id)
        else:
            self._all.count += 1
        last[packet_id] = ticket
        if len(last) > MAX_OF_CLIENT:
            last.popitem(last=False)
            self._all.count -= 1
        elif self._all.count > MAX_UNPROVEN:
            self._all.shrink()

    def free(self, packet_id: int) -> None:
        """The packet id was used for something else: its last message is no longer resent."""
        if self.last.pop(packet_id, None) is not None:
            self._all.count -= 1

    def delivered(self, tickets: Iterable[Ticket]) -> None:
        """The client has the PUBACKs of these messages."""
        for ticket in tickets:
            if self.last.get(ticket.packet_id) is ticket:
                self.free(ticket.packet_id)

    def delivery(self, packet_id: int, device: str, now: float) -> AckDelivery:
        """What is known of the PUBACK of the packet id's last message, if that was `device`'s."""
        ticket = self.last.get(packet_id)
        if ticket is None or ticket.device != device:
            return AckDelivery.PROVEN
        return AckDelivery.UNPROVEN if now <= ticket.resend_until else AckDelivery.DOUBTFUL


class Acknowledgements:
    """All clients of a listener. `count`: how many messages are remembered."""

    def __init__(self) -> None:
        self.count = 0
        self._clients: dict[Client, ClientAcks] = {}

    def open(self, client: Client) -> ClientAcks:
        """A client is in; a former connection may still be open."""
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = ClientAcks(self)
        found.connections += 1
        return found

    def close(self, client: Client) -> None:
        """One of its connections is over."""
        found = self._clients[client]
        found.connections -= 1
        if not found.connections:
            del self._clients[client]
            if found.last:
                self._clients[client] = found  # as the one that has been away for the shortest time

    def shrink(self) -> None:
        """Forget a quarter: clients that are away, the longest first, then the older half of what the others have."""
        for client, each in list(self._clients.items()):
            if not each.connections:
                self.count -= len(each.last)
                del self._clients[client]
                if self.count <= MAX_UNPROVEN * 3 // 4:
                    return
        for each in self._clients.values():
            for packet_id in list(each.last)[: (len(each.last) + 1) // 2]:
                each.free(packet_id)


def ended(tickets: Iterable[tuple[float, list[Ticket]]], now: float, *, drained: bool) -> None:
    """The connection is over on which these PUBACKs were written, at these times, and are not proven to be delivered.

    `drained`: its send queue was empty. What is not among the tickets was never acknowledged.
    """
    for written, each in tickets:
        until = inf if not drained else now + RECONNECT_S if now - written < DELIVERED_AFTER_S else -inf
        for ticket in each:
            ticket.resend_until = until
