"""Sockets whose clients have not been accepted yet. Too many make room for new ones."""

from collections import Counter

from fogline_edge.adapters.mqtt.server.connection import ClientConnection


class UnnamedSockets:
    """The sockets by age and by the address of the peer."""

    def __init__(self) -> None:
        self._hosts: dict[ClientConnection, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, connection: ClientConnection, host: str) -> None:
        """Add a new socket."""
        self._hosts[connection] = host
        self._counts[host] += 1

    def discard(self, connection: ClientConnection) -> None:
        """Remove a socket, if it is there."""
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]

    def first_to_go(self) -> ClientConnection | None:
        """Return the oldest socket of the address that has most, so that one peer does not push the others out."""
        if not self._hosts:
            return None
        crowd = max(self._counts, key=self._counts.__getitem__)
        return next(connection for connection, host in self._hosts.items() if host == crowd)
