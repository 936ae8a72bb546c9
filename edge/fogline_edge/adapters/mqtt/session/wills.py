"""The Will Message of one connection (5: 3.1.2.5), and the memory that the wills of all clients may take: pure."""

from dataclasses import dataclass

from fogline_edge.adapters.mqtt.hono.intake import Client, PublishIntake
from fogline_edge.adapters.mqtt.protocol.packets import Publish, Will
from fogline_edge.adapters.mqtt.session.effects import LastWill

MAX_WILL_BYTES = 16 * 1024 * 1024
"""The most bytes of wills that a listener holds. A CONNECT whose will does not fit is refused (0x97)."""
ENTRY_BYTES = 1024
"""The memory that a will takes beside its payload."""


@dataclass(slots=True)
class WillBudget:
    """Bytes of wills, from their CONNECT until they are stored or discarded."""

    most_bytes: int = MAX_WILL_BYTES
    held_bytes: int = 0

    def take(self, will: Will | None) -> int | None:
        """Reserve memory for a will. Returns its cost, for `give_back`, or None if there is no room."""
        cost = 0 if will is None else ENTRY_BYTES + len(will.payload) + len(will.topic)
        if cost and self.held_bytes + cost > self.most_bytes:
            return None
        self.held_bytes += cost
        return cost

    def give_back(self, cost: int) -> None:
        """Free the memory of a will that is stored or discarded."""
        self.held_bytes -= cost


@dataclass(slots=True)
class ConnectionWill:
    """The will of one connection, until it is published or discarded. `cost`: its share of the budget, in bytes."""

    will: Will | None
    cost: int
    budget: WillBudget

    def discard(self) -> None:
        """Discard the will: the client sent DISCONNECT (5: 3.14.4)."""
        if self.will is not None:
            self.will = None
            self.budget.give_back(self.cost)

    def due(self, client: Client, intake: PublishIntake, expiry_s: int, *, taken_over: bool, resumed: bool) -> LastWill | None:
        """Return the will to publish at the end of the connection. `taken_over`, `resumed`: as in `ClientProtocol.end`."""
        will = self.will
        if will is None:
            return None
        delay_s = min(will.properties.will_delay_s or 0, expiry_s)
        if taken_over and resumed and delay_s:
            self.discard()
            return None
        self.will = None
        message = Publish(topic=will.topic, payload=will.payload, retain=will.retain, properties=will.properties)
        arrival, _ = intake.arrival(client, message, b"")
        return LastWill(arrival, 0 if taken_over else delay_s, self.cost)
