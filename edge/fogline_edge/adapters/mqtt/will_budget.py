"""The memory that wills may take, of clients that are connected and of clients that are gone: pure."""

from dataclasses import dataclass

from fogline_edge.adapters.mqtt.packets import Will

MAX_WILL_BYTES = 16 * 1024 * 1024
"""The most bytes of wills that a listener holds. A CONNECT whose will does not fit is refused (0x97)."""
ENTRY_BYTES = 1024
"""What a will takes beside its payload."""


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
        """The will is stored or discarded."""
        self.held_bytes -= cost
