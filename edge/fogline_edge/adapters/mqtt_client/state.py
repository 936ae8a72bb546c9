"""State of the clients of brokers. It is kept in the outbox's file, where `fogline-edge status` reads it. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from fogline.documents.json_document import read_document
from fogline.errors import Poison
from fogline_edge.profiles.broker_commands.directory import is_offline
from fogline_edge.profiles.profile import ADAPTER

STATE = "state"
NAMES, DIGESTS, NOTES = "name", "about", "device"
"""Kinds of what a client keeps: names of devices, digests of their descriptions, and notes for their commands."""


class BrokerState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one client `since` a time (RFC 3339). `problem`: why there is no connection, or what the broker refuses.

    `devices`: those that commands may reach, `offline` of them included; None if the client sends no commands.
    """

    broker: str
    since: str
    connected: bool
    problem: str | None = None
    devices: int | None = None
    offline: int = 0

    @property
    def sentence(self) -> str:
        """The state in words."""
        text = f"{'connected to' if self.connected else 'not connected to'} {self.broker} since {self.since}"
        if self.problem is not None:
            text += f": {self.problem}"
        if self.devices is None:
            return f"{text}; it sends no commands (send_commands)"
        return f"{text}; commands reach {self.devices - self.offline} of {self.devices} devices, {self.offline} are offline"


def read_clients(kept: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, BrokerState]]:
    """Yield name and state of each client. `kept`: what the adapters have kept."""
    states: dict[str, BrokerState] = {}
    offline: Counter[str] = Counter()
    for key, value in kept:
        match key.split("/", 3):
            case [adapter, client, kind] if (adapter, kind) == (ADAPTER, STATE):
                try:
                    states[client] = read_document(value, BrokerState, "the state of a client")
                except Poison:
                    continue
            case [adapter, client, kind, _] if (adapter, kind) == (ADAPTER, NOTES):
                offline[client] += is_offline(value)
    for client, state in sorted(states.items()):
        yield client, msgspec.structs.replace(state, offline=min(offline[client], state.devices or 0))
