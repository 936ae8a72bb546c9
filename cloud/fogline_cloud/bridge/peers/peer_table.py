"""The open connections of a bridge, and how many of them, and of links, a peer may have. Used on the loop."""

import time
from collections.abc import Iterator

from cryptography import x509

from fogline_cloud.access.policy import Policy
from fogline_cloud.access.principal import Principal
from fogline_cloud.access.quotas import Quotas, Use
from fogline_cloud.bridge.peers.peer import Peer, PeerConnection


class PeerTable:
    """The peers by connection. `most`: connections of all peers."""

    def __init__(self, most: int, policy: Policy) -> None:
        self._most = most
        self._policy = policy
        self._quotas = Quotas()
        self._peers: dict[PeerConnection, Peer] = {}
        self._certificates: dict[PeerConnection, x509.Certificate] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[Peer]:
        return iter(list(self._peers.values()))

    def get(self, connection: PeerConnection) -> Peer | None:
        """Return the peer of a connection, if it was let in."""
        return self._peers.get(connection)

    def shortage(self, principal: Principal) -> str | None:
        """Return the limit that one more connection of a principal would exceed, in words; None if there is room."""
        if len(self._peers) >= self._most:
            return f"at most {self._most} connections"
        use = self._use(principal)
        if use is None or use.quota.connections is None or len(self._of(use)) < use.quota.connections:
            return None
        return f"{principal}: at most {use.quota.connections} connections (bridge.access)"

    def add(self, peer: Peer, certificate: bytes | None) -> None:
        """Add a peer that was let in, with its certificate (DER) if it has one."""
        self._peers[peer.connection] = peer
        if certificate is not None:
            self._certificates[peer.connection] = x509.load_der_x509_certificate(certificate)
        peer.use = self._use(peer.principal)

    def remove(self, connection: PeerConnection) -> Peer | None:
        """Remove a connection that has ended. Return its peer, None if it was not let in."""
        self._certificates.pop(connection, None)
        if (peer := self._peers.pop(connection, None)) is not None:
            peer.closed = True
        return peer

    def certified(self) -> list[tuple[Peer, x509.Certificate]]:
        """Return the peers that have certificates."""
        return [(self._peers[connection], certificate) for connection, certificate in self._certificates.items()]

    def has_free_link(self, peer: Peer) -> bool:
        """Return True if the peer may open one more link."""
        if peer.use is None or peer.use.quota.links is None:
            return True
        return sum(not link.closed for each in self._of(peer.use) for link in each.links) < peer.use.quota.links

    def measure_again(self) -> None:
        """Measure every peer by its quota of now."""
        for peer in self._peers.values():
            peer.use = self._use(peer.principal)

    def _of(self, use: Use) -> list[Peer]:
        return [peer for peer in self._peers.values() if peer.use is use]

    def _use(self, principal: Principal) -> Use | None:
        return self._quotas.use(principal, self._policy.quota(principal), time.monotonic())
