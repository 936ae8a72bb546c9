"""Ends what open connections may use no longer: connections whose login has ended, and links after a change of permissions."""

import logging
from collections.abc import Callable

from fogline.address import Address, Relay, parse_address
from fogline.amqp.events import Link
from fogline.amqp.outcome import UNAUTHORIZED, Condition
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.bridge.door.authentication import Authentication
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import Peer, PeerConnection
from fogline_cloud.bridge.peers.peer_table import PeerTable

_log = logging.getLogger("fogline.bridge")


class Withdrawals:
    """Ends connections and links of `peers`. `detached` is called for each link that is ended here. Used on the loop."""

    def __init__(
        self,
        peers: PeerTable,
        authentication: Authentication,
        policy: Policy,
        audit: AuditTrail,
        detached: Callable[[PeerConnection, Link, None], None],
    ) -> None:
        self._peers = peers
        self._authentication = authentication
        self._policy = policy
        self._audit = audit
        self._detached = detached

    def close_ended(self) -> None:
        """Close the connections whose login counts no longer.

        Their certificate has been revoked, or has expired, or their user was deleted or got another password.
        """
        for peer, certificate in self._peers.certified():
            if (why := self._authentication.has_ended(certificate)) is not None:
                self._close(peer, "certificate", why)
        for peer in self._peers:
            if (why := self._authentication.login_ended(peer.connection)) is not None:
                self._close(peer, "login", why)

    def _close(self, peer: Peer, what: str, why: str) -> None:
        _log.warning("the connection of %s is closed: its %s: %s", peer.principal, what, why)
        self._audit.note(peer.principal, "CONNECTION CLOSED", f"its {what}: {why}")
        peer.connection.close(Condition(UNAUTHORIZED, f"the {what} of {peer.principal.name}: {why}"))

    def take_permissions(self) -> None:
        """Apply changed permissions to open connections: their quotas, and their links that are no longer allowed."""
        self._peers.measure_again()
        for peer in self._peers:
            for link in list(peer.links):
                address, action = address_of(link, self._policy.tenant), Action.RECEIVE if link.sending else Action.SEND
                if not link.closed and not self._policy.may(peer.principal, action, address):
                    why = f"{peer.principal} may not {action} at {address} any more"
                    self._audit.note(peer.principal, "LINK REFUSED", why, name=str(address))
                    peer.connection.refuse_link(link, Condition(UNAUTHORIZED, why))
                    self._detached(peer.connection, link, None)


def address_of(link: Link, tenant: str) -> Address:
    """Return the address of a link; one without an address is the anonymous relay. Raises `Poison('bad-address')`."""
    return Relay(tenant) if not link.address and not link.sending else parse_address(link.address)
