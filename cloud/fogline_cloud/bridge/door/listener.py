"""Accepts AMQP connections and links, and passes messages to the handler of their address, as far as the policy allows.

Every message on the anonymous relay, a link without an address, has its own `to` (OASIS AMQP anonymous terminus).
"""

import asyncio
import contextlib
import logging
import re
from functools import partial
from typing import NamedTuple

from fogline.address import (
    Address,
    CommandAddress,
    CommandResponse,
    DeviceAddress,
    EnrollAddress,
    FlowAddress,
    ParserAddress,
    Relay,
    Reports,
    parse_address,
)
from fogline.amqp.driver import AmqpConnection, listen
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import (
    DECODE_ERROR,
    FORCED,
    INTERNAL_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    RELEASED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
    Outcome,
    rejected,
)
from fogline.amqp.wire import decode
from fogline.connection_clock import CLOCK, monotonic_ms
from fogline.errors import Misconfigured, Poison
from fogline.message import Message
from fogline.process.log_throttle import LogThrottle
from fogline_cloud.access.policy import Action, Policy
from fogline_cloud.access.principal import Principal, PrincipalKind
from fogline_cloud.bridge.consumers.client_events import CREDIT
from fogline_cloud.bridge.door.authentication import Authentication, NotAuthenticated
from fogline_cloud.bridge.door.entrance import Entrance, other_tenant
from fogline_cloud.bridge.door.handshakes import Handshakes
from fogline_cloud.bridge.door.withdrawals import Withdrawals, address_of
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.peer import GatewayPeer, LinkHandler, Peer, PeerConnection
from fogline_cloud.settings import BridgeSettings

CLOSE_S = 2.0
"""The time that peers get to answer a close."""
_CONDITIONS = {  # The AMQP condition for each reason of `Poison`. Any other reason becomes `amqp:decode-error`.
    "bad-address": NOT_FOUND,
    "unknown-command": NOT_FOUND,
    "not-authorised": UNAUTHORIZED,
    "quota": RESOURCE_LIMIT,
    "reserved-content-type": NOT_ALLOWED,
    "bad-content-type": INVALID_FIELD,
    "ttl": NOT_ALLOWED,
    "too-big": MESSAGE_SIZE_EXCEEDED,
}

_log = logging.getLogger("fogline.bridge")
_refusals = logging.getLogger("fogline.bridge.refused")
_refusals.addFilter(LogThrottle(variable=re.compile(r"'[^']*'|(?<= of )\S+")))  # strangers name themselves as they like
_unexpected = logging.getLogger("fogline.bridge.unexpected")
_unexpected.addFilter(LogThrottle())


class LinkHandlers(NamedTuple):
    """The handlers by kind of address."""

    gateways: LinkHandler
    events: LinkHandler
    operators: LinkHandler
    enrolment: LinkHandler
    devices: LinkHandler
    consumers: LinkHandler
    lists: LinkHandler
    notices: LinkHandler

    def of(self, address: Address, *, receives: bool = False) -> LinkHandler:  # noqa: PLR0911 - one for each kind
        """Return the handler of links and messages at an address. `receives`: of links on which the peer receives."""
        match address:
            case Reports():
                return self.consumers if receives else self.events
            case DeviceAddress():
                return self.lists if receives else self.devices
            case CommandAddress():
                return self.lists if receives else self.operators
            case CommandResponse():
                return self.operators
            case EnrollAddress():
                return self.enrolment
            case ParserAddress() | FlowAddress():
                return self.notices
            case _:
                return self.gateways


class Listener:
    """Serves gateways, operators and other clients, each kind of address by its handler. All methods run on the loop."""

    def __init__(
        self,
        settings: BridgeSettings,
        authentication: Authentication,
        policy: Policy,
        connected: ConnectedGateways,
        handlers: LinkHandlers,
        *,
        audit: AuditTrail,
    ) -> None:
        self.refused = 0
        """Connections that were not let in."""
        self._authentication = authentication
        self.handshakes = Handshakes(authentication)
        self._policy = policy
        self._handlers = handlers
        self._audit = audit
        self.entrance = Entrance(settings, policy, connected, audit)
        self.peers = self.entrance.peers
        self.withdrawals = Withdrawals(self.peers, authentication, policy, audit, self.link_closed)
        self._servers: list[asyncio.Server] = []
        self._all_gone = asyncio.Event()

    async def start(self, host: str, port: int, *, websocket: bool = False) -> tuple[str, int]:
        """Listen, for AMQP on the socket itself or over WebSocket, and return the host and port. Raises `Misconfigured`."""
        try:
            server = await listen(host, port, partial(self.handshakes.connection, self, websocket=websocket))
        except OSError as error:
            what = f"cannot listen on {host}:{port}: {error.strerror or error}"
            key = "bridge.websocket" if websocket else "bridge.listen"
            raise Misconfigured(f"{what}. Is another bridge running? Set {key} to a free port.") from None
        self._servers.append(server)
        bound = server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    @property
    def clients(self) -> int:
        """The number of connected operators and other AMQP clients."""
        return sum(not isinstance(peer, GatewayPeer) for peer in self.peers)

    @property
    def queued_bytes(self) -> int:
        """The bytes of messages that wait for a Kafka transaction."""
        return self.entrance.budget.held_bytes

    async def close(self) -> None:
        """Close every connection and stop listening."""
        for server in self._servers:
            server.close()
        for peer in self.peers:
            peer.connection.close(Condition(FORCED, "the bridge is stopping"))
        if len(self.peers):
            self._all_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._all_gone.wait()
        for peer in self.peers:
            peer.connection.abort()

    def opened(self, connection: AmqpConnection, remote: AmqpPeer) -> None:
        """Accept or refuse a connection."""
        try:
            principal = self._authentication.principal(remote)
        except NotAuthenticated as error:
            self._refuse(connection, Condition(UNAUTHORIZED, str(error)))
            return
        if (condition := self.entrance.doubt(principal)) is not None:
            self._refuse(connection, condition)
        else:
            self._let_in(connection, principal, remote)

    def _let_in(self, connection: AmqpConnection, principal: Principal, remote: AmqpPeer) -> None:
        secret = remote.login.password if principal.kind is PrincipalKind.ENROLLEE else ""
        by = self._authentication.forwarded_by(remote) if principal.kind is not PrincipalKind.GATEWAY else ""
        self.entrance.let_in(principal, connection, secret, by, remote.certificate)
        self.handshakes.let_in(connection, principal)
        connection.accept({CLOCK: monotonic_ms()})

    def _refuse(self, connection: AmqpConnection, condition: Condition) -> None:
        connection.accept()
        connection.close(condition)

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Accept a link that the policy allows, refuse any other."""
        peer = self.peers.get(connection)
        if peer is None:
            connection.refuse_link(link, Condition(UNAUTHORIZED, "this connection is being closed"))
            return
        try:
            self._attach(connection, peer, link)
        except Exception as error:  # noqa: BLE001 - one link must not end the connection with all the others
            _unexpected.exception("a link of %s is refused after an unexpected error", peer.principal)
            peer.links.discard(link)
            connection.refuse_link(link, Condition(INTERNAL_ERROR, _internal(error)))

    def _attach(self, connection: AmqpConnection, peer: Peer, link: Link) -> None:
        try:
            address = address_of(link, self._policy.tenant)
        except Poison as error:
            connection.refuse_link(link, Condition(NOT_FOUND, str(error)))
            return
        action = Action.RECEIVE if link.sending else Action.SEND
        if not self._policy.may(peer.principal, action, address):
            self._audit.note(peer.principal, "LINK REFUSED", f"it may not {action} here", name=str(address))
            why = f"{peer.principal} may not {action} at {address}"
            why = why if address.tenant == self._policy.tenant else other_tenant(address.tenant)
            connection.refuse_link(link, Condition(UNAUTHORIZED, why))
        elif not self.peers.has_free_link(peer):
            why = f"{peer.principal} is over its quota of links (bridge.access)"
            connection.refuse_link(link, Condition(RESOURCE_LIMIT, why))
        elif isinstance(address, Relay):
            peer.links.add(link)
            peer.accept_link(link, address, CREDIT)
        else:
            peer.links.add(link)
            self._handlers.of(address, receives=link.sending).attach(peer, link, address)

    def link_closed(self, connection: PeerConnection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """Tell the handlers that a peer has detached a link."""
        if (peer := self.peers.get(connection)) is not None:
            peer.addresses.pop(link, None)
            peer.links.discard(link)
            for handler in self._handlers:
                handler.detached(link)

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Pass a message to its handler. Reject a message that cannot be read or is not allowed."""
        peer = self.peers.get(connection)
        address = peer.addresses.get(delivery.link) if peer else None
        if peer is None or address is None:
            connection.settle(delivery, RELEASED)
            return
        try:
            message = decode(data)
            if isinstance(address, Relay):
                address = self._relay_address(peer, message)
            self._handlers.of(address).received(peer, delivery, message, address)
        except Poison as error:
            _log.info("a message of %s is rejected: %s", peer.principal, error, extra={"reason": error.reason})
            if error.reason in ("not-authorised", "quota"):
                self._audit.note(peer.principal, "MESSAGE REFUSED", str(error), name=str(address))
            peer.settle(delivery, refusal(error))
        except Exception as error:  # noqa: BLE001 - one message must not end the connection, where its copy would do it again
            _unexpected.exception("a message of %s is rejected after an unexpected error", peer.principal)
            self._audit.note(peer.principal, "MESSAGE REFUSED", _internal(error), name=str(address))
            peer.settle(delivery, rejected(INTERNAL_ERROR, _internal(error)))

    def _relay_address(self, peer: Peer, message: Message) -> Address:
        """Return the address of a message on the anonymous relay. Raises `Poison` (`bad-address`, `not-authorised`)."""
        address = parse_address(message.to or "")
        # What may be done to a device depends on the action, which its handler reads.
        subject = DeviceAddress(address.tenant, "") if isinstance(address, DeviceAddress) else address
        if isinstance(address, Relay) or not self._policy.may(peer.principal, Action.SEND, subject):
            raise Poison("not-authorised", f"{peer.principal} may not send at {address}")
        return address

    def closed(self, connection: AmqpConnection, why: str) -> None:
        """Tell the handlers that a connection has ended."""
        self.handshakes.closed(connection)
        if self.entrance.leave(connection, why) is None:
            self.refused += 1
            _refusals.warning("a connection is refused: %s", why)
            self._audit.note(None, "CONNECTION REFUSED", why)
        else:
            for handler in self._handlers:
                handler.detached(None)
        if not len(self.peers):
            self._all_gone.set()


def _internal(error: Exception) -> str:
    """Return what a peer learns about an error of this bridge."""
    return f"the bridge failed at it ({type(error).__name__}); its log says why"


def refusal(error: Poison) -> Outcome:
    """Return the outcome of a message that can never be accepted."""
    return rejected(_CONDITIONS.get(error.reason, DECODE_ERROR), str(error))
