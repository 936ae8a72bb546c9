"""Sockets that wait for their clients: for a login, or for a request. Too many make room for new ones. Pure."""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class UnnamedSockets(Generic[S]):
    """The sockets by age and by the address of the peer."""

    def __init__(self) -> None:
        self._hosts: dict[S, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._hosts)

    def add(self, connection: S, host: str) -> None:
        """Add a new socket."""
        self._hosts[connection] = host
        self._counts[host] += 1

    def discard(self, connection: S) -> None:
        """Remove a socket, if it is there."""
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]

    def first_to_go(self) -> S | None:
        """Return the oldest socket of the address that has most, so that one peer does not push the others out."""
        if not self._hosts:
            return None
        crowd = max(self._counts, key=self._counts.__getitem__)
        return next(connection for connection, host in self._hosts.items() if host == crowd)
