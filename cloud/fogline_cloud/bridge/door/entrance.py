"""Lets peers in, and knows those that are in, whether they have a connection of their own or are behind a router."""

import logging

from cryptography import x509

from fogline.address import is_identifier, shard_of, shown
from fogline.amqp.outcome import RESOURCE_LIMIT, UNAUTHORIZED, Condition
from fogline_cloud.access.policy import Policy
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import GatewayPeer, Peer, PeerConnection
from fogline_cloud.bridge.peers.peer_table import PeerTable
from fogline_cloud.bridge.peers.queue_budget import QueueBudget
from fogline_cloud.settings import BridgeSettings

_log = logging.getLogger("fogline.bridge")


class Entrance:
    """The peers of one bridge. Used on the loop."""

    def __init__(self, settings: BridgeSettings, policy: Policy, connected: ConnectedGateways, audit: AuditTrail) -> None:
        self.peers = PeerTable(settings.max_connections, policy)
        self.budget = QueueBudget(settings.queue_connection_bytes, settings.queue_bytes)
        self.audit = audit
        self._policy, self._connected = policy, connected

    def doubt(self, principal: Principal) -> Condition | None:
        """Return why a peer that has proven its name may not come in, None if it may."""
        kind = principal.kind
        nameless = kind is not PrincipalKind.CLIENT and not is_identifier(principal.name)
        if principal.tenant != self._policy.tenant:
            return Condition(UNAUTHORIZED, other_tenant(principal.tenant))
        if nameless or not self._policy.knows(principal):
            return Condition(UNAUTHORIZED, f"{kind} {shown(principal.name)} is not known here")
        why = self.peers.shortage(principal)
        return Condition(RESOURCE_LIMIT, why) if why is not None else None

    def let_in(self, principal: Principal, connection: PeerConnection, secret: str, by: str, certificate: bytes | None) -> Peer:
        """Let a peer in, and return it. `by`: the bridge that has opened the connection for it, "" for none."""
        peer: Peer
        if principal.kind is PrincipalKind.GATEWAY:
            number = shard_of(principal.name, self._policy.shards)
            peer = gateway = GatewayPeer(principal, connection, self.budget, shard_number=number)
            self._connected.add(gateway)
        else:
            peer = Peer(principal, connection, self.budget, secret, forwarded=bool(by))
            if certificate is not None:
                peer.serial = format(x509.load_der_x509_certificate(certificate).serial_number, "x")
        self.peers.add(peer, certificate)
        self.audit.note(principal, "CONNECTED", f"by bridge {shown(by)}" if by else "")
        return peer

    def leave(self, connection: PeerConnection, why: str) -> Peer | None:
        """Forget a connection that has ended. Return its peer, None if it was not let in."""
        peer = self.peers.remove(connection)
        if peer is not None:
            _log.info("the connection of %s ended: %s", peer.principal, why)
            self.budget.forget(peer.queued)
            if isinstance(peer, GatewayPeer):
                self._connected.remove(peer)
        return peer


def other_tenant(tenant: str) -> str:
    """Return what a peer of another tenant is told."""
    return f"tenant {shown(tenant)} is not served here"
