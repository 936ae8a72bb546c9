"""The AMQP side of the bridge: who may connect, which links, and which desk serves what comes.

Every border asks the policy. A link without an address is the anonymous relay: each message is asked for by its own
`to` (OASIS AMQP anonymous terminus for message routing).
"""

import asyncio
import contextlib
import logging

from fogline import address, hello
from fogline.amqp.driver import Connection, listen
from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link, Peer
from fogline.amqp.outcome import (
    DECODE_ERROR,
    FORCED,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RELEASED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    Condition,
    rejected,
)
from fogline.amqp.wire import decode
from fogline.errors import Misconfigured, Poison
from fogline.message import Message
from fogline.principal import Action, Kind, Policy, Principal
from fogline_cloud.bridge.gateways import GatewayDesk
from fogline_cloud.bridge.guest import Desk, Guest
from fogline_cloud.bridge.queue_budget import QueueBudget
from fogline_cloud.bridge.reports import CREDIT, ReportDesk
from fogline_cloud.commands.desk import CommandDesk
from fogline_cloud.settings import BridgeSettings

CLOSE_S = 2.0
"""How long peers may take to answer a close."""
_CONDITIONS = {
    "bad-address": NOT_FOUND,
    "not-authorised": UNAUTHORIZED,
    "reserved-content-type": NOT_ALLOWED,
    "bad-content-type": INVALID_FIELD,
    "ttl": NOT_ALLOWED,
    "too-big": MESSAGE_SIZE_EXCEEDED,
}
"""The condition under which a message is rejected, by the reason; any other: it cannot be read."""
CAPABILITIES = ("ANONYMOUS-RELAY",)

_log = logging.getLogger("fogline.bridge")


class Listener:
    """Serves gateways and clients. All methods run on the loop."""

    def __init__(
        self, settings: BridgeSettings, policy: Policy, gateways: GatewayDesk, reports: ReportDesk, commands: CommandDesk
    ) -> None:
        self.refused = 0
        self._settings = settings
        self._policy = policy
        self._gateways = gateways
        self._reports = reports
        self._commands = commands
        self._guests: dict[Connection, Guest] = {}
        self._budget = QueueBudget(settings.queue_connection_bytes, settings.queue_bytes)
        self._server: asyncio.Server | None = None
        self._all_gone = asyncio.Event()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address that it became. Raises `Misconfigured`."""
        try:
            self._server = await listen(host, port, self._connection)
        except OSError as error:
            what = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise Misconfigured(f"{what}; is another bridge running? set bridge.listen to a free port") from None
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def close(self) -> None:
        """Close every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        for guest in list(self._guests.values()):
            guest.connection.close(Condition(FORCED, "the bridge is stopping"))
        if self._guests:
            self._all_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), CLOSE_S)
        for guest in list(self._guests.values()):
            guest.connection.abort()

    def _connection(self) -> Connection:
        return Connection(Engine(self._settings.name, server=True, capabilities=CAPABILITIES), self)

    # --- Handler

    def opened(self, connection: Connection, peer: Peer) -> None:
        """A peer opens: without credentials its container id is its name, and its product says what it is."""
        tenant = str(peer.properties.get("tenant", self._policy.tenant))
        kind = Kind.GATEWAY if peer.properties.get("product") == hello.PRODUCT else Kind.CLIENT
        principal = Principal(kind, tenant, peer.container, "asserted")
        nameless = kind is Kind.GATEWAY and not address.is_identifier(peer.container)
        if nameless or not self._policy.knows(principal):
            self._turn_away(connection, Condition(UNAUTHORIZED, f"{kind} {address.shown(peer.container)} is not known here"))
        elif len(self._guests) >= self._settings.max_connections:
            self._turn_away(connection, Condition(RESOURCE_LIMIT, f"at most {self._settings.max_connections} connections"))
        else:
            guest = self._guests[connection] = Guest(principal, connection, self._budget)
            if kind is Kind.GATEWAY:
                self._gateways.join(guest)
            connection.accept()

    def _turn_away(self, connection: Connection, condition: Condition) -> None:
        self.refused += 1
        _log.warning("a connection is refused: %s", condition)
        connection.accept()
        connection.close(condition)

    def link_requested(self, connection: Connection, link: Link) -> None:
        """Attach what the policy allows."""
        guest = self._guests.get(connection)
        if guest is None:
            connection.refuse_link(link, Condition(UNAUTHORIZED, "this connection is being closed"))
            return
        try:
            place = self._place(link)
        except Poison as error:
            connection.refuse_link(link, Condition(NOT_FOUND, str(error)))
            return
        action = Action.RECEIVE if link.sending else Action.SEND
        if isinstance(place, address.Reports) and link.sending:
            why = f"events are not sent over AMQP: read the Kafka topic hono.{place.endpoint}.<tenant> instead"
            connection.refuse_link(link, Condition(NOT_IMPLEMENTED, why))
        elif not self._policy.may(guest.principal, action, place):
            connection.refuse_link(link, Condition(UNAUTHORIZED, f"{guest.principal} may not {action} at {place}"))
        elif isinstance(place, address.Relay):
            guest.addresses[link] = place
            connection.accept_link(link, credit=CREDIT)
        else:
            self._desk(place).attach(guest, link, place)

    def _place(self, link: Link) -> address.Address:
        if not link.address and not link.sending:
            return address.Relay(self._policy.tenant)
        return address.parse_address(link.address)

    def _desk(self, place: address.Address) -> Desk:
        match place:
            case address.Commands() | address.CommandResponse():
                return self._commands
            case address.Reports():
                return self._reports
            case _:
                return self._gateways

    def link_closed(self, connection: Connection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """A peer detached."""
        if (guest := self._guests.get(connection)) is not None:
            guest.addresses.pop(link, None)
            for desk in (self._gateways, self._reports, self._commands):
                desk.detached(guest, link)

    def received(self, connection: Connection, delivery: Delivery, data: bytes) -> None:
        """A message for one of the desks."""
        guest = self._guests.get(connection)
        place = guest.addresses.get(delivery.link) if guest else None
        if guest is None or place is None:
            connection.settle(delivery, RELEASED)
            return
        try:
            message = decode(data)
            if isinstance(place, address.Relay):
                place = self._by_message(guest, message)
            self._desk(place).received(guest, delivery, message, place)
        except Poison as error:
            _log.info("a message of %s is refused: %s", guest.principal, error)
            guest.settle(delivery, rejected(_CONDITIONS.get(error.reason, DECODE_ERROR), str(error)))

    def _by_message(self, guest: Guest, message: Message) -> address.Address:
        """Where a message on the anonymous relay goes. Raises `Poison` (`bad-address`, `not-authorised`)."""
        place = address.parse_address(message.to or "")
        if isinstance(place, address.Relay) or not self._policy.may(guest.principal, Action.SEND, place):
            raise Poison("not-authorised", f"{guest.principal} may not send at {place}")
        return place

    def closed(self, connection: Connection, why: str) -> None:
        """A peer is gone."""
        guest = self._guests.pop(connection, None)
        if guest is not None:
            _log.info("%s is gone: %s", guest.principal, why)
            self._budget.forget(guest.inflow)
            for desk in (self._gateways, self._reports, self._commands):
                desk.gone(guest)
        if not self._guests:
            self._all_gone.set()
