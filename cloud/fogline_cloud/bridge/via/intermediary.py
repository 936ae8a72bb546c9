"""The connection of a bridge to one router or broker, made again when it ends, and its links."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from fogline.address import Address
from fogline.amqp.backoff import Backoff
from fogline.amqp.dial import dial
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, RELEASED, Condition, Outcome
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.errors import Misconfigured, Poison, Unreachable
from fogline.message import Message
from fogline.process.files.via_place import ViaPlace
from fogline.process.files.via_settings import ViaKind, ViaSettings
from fogline_cloud.bridge.via.via_links import ViaLinks

CLOSE_S = 1.0
STABLE_S = 10.0
"""A connection that lasted so long resets the back-off."""

_log = logging.getLogger("fogline.bridge.via")


class ViaHandler(Protocol):
    """The receiver of the messages of a router or broker. Its methods must not raise."""

    def received(self, via: "Intermediary", delivery: Delivery, message: Message, address: Address) -> None:
        """Take a message: call `via.settle`, now or later."""

    def refuse(self, via: "Intermediary", delivery: Delivery, name: str, why: str, address: Address) -> None:
        """Refuse a message in the name of a gateway, "" for none, and settle it."""

    def connected(self, via: "Intermediary") -> None:
        """The connection was made: messages can be sent again."""


class Intermediary:
    """One router or broker. Used on the loop. `place` is called for each connection, and raises `Misconfigured`."""

    def __init__(
        self, name: str, tenant: str, via: ViaSettings, place: Callable[[], ViaPlace], handler: ViaHandler, *, backoff: Backoff
    ) -> None:
        self.kind, self.url = via.kind, via.url
        self.why = "not connected yet"
        """Why there is no connection, "" if there is one."""
        self._name, self._tenant, self._place, self._handler = name, tenant, place, handler
        self._backoff = backoff
        self._capabilities = ("queue",) if self.kind is ViaKind.BROKER else ()
        self._shards: frozenset[int] = frozenset()
        self._connection: AmqpConnection | None = None
        self._links: ViaLinks | None = None
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.url}"

    def start(self) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._run(), name=f"via {self.kind}")

    async def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def serve(self, shards: frozenset[int]) -> None:
        """Receive the messages of these shards' gateways, and of no others."""
        self._shards = shards
        if self._links is not None:
            self._links.serve(shards)

    def control(self, gateway: str) -> Sender | None:
        """Return the link to a gateway, None without a connection."""
        return self._links.control(gateway) if self._links is not None else None

    def release(self, gateway: str) -> None:
        """End the link to a gateway that is gone."""
        if self._links is not None:
            self._links.release(gateway)

    def settle(self, delivery: Delivery, outcome: Outcome = ACCEPTED) -> None:
        """Settle a message. A broker has no use for other outcomes: it would send the message again, or put it aside."""
        if self._connection is not None:
            self._connection.settle(delivery, outcome if self.kind is ViaKind.ROUTER else ACCEPTED, credit=1)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._serve()
            except Unreachable as error:
                level = logging.INFO if str(error) == self.why else logging.WARNING
                _log.log(level, "no connection to %s: %s", self, error)
                self.why = str(error)
            if loop.time() - began >= STABLE_S:
                self._backoff.stable()
            await asyncio.sleep(self._backoff.next_s())

    async def _serve(self) -> None:
        """Serve one connection to its end. Raises `Unreachable`."""
        self._over = asyncio.get_running_loop().create_future()
        try:
            place = self._place()
        except Misconfigured as error:  # files that are just being replaced
            raise Unreachable(str(error)) from None
        engine = Engine(self._name, hostname=place.address.host, security=place.security)
        connection = await dial(place.address.host, place.address.port, engine, self)
        try:
            await asyncio.wait([self._over])
            raise Unreachable(self._over.result())
        finally:
            connection.close()
            try:
                await asyncio.wait([self._over], timeout=CLOSE_S)
            finally:
                connection.abort()

    # --- Handler of the connection

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:  # noqa: ARG002 - the handler's interface
        """See `Handler`."""
        self._connection = connection
        self._links = ViaLinks(connection, self._name, self._tenant, self._capabilities)
        _log.info("connected to %s", self)
        self.why = ""
        self._links.serve(self._shards)
        self._handler.connected(self)

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """See `Handler`."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "a bridge that connects out serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:
        """End the connection if the link is one of those that receive: all of them are attached again with the next one."""
        address = self._links.address_of(link) if self._links is not None else None
        if address is not None:
            self.closed(connection, f"the {self.kind} ended the link at {address}: {condition or 'no reason given'}")

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """See `Handler`."""
        address = self._links.address_of(delivery.link) if self._links is not None else None
        if address is None:  # of a link that is being detached: the message belongs to another bridge
            connection.settle(delivery, RELEASED)
            return
        try:
            message = decode(data)
        except Poison as error:
            self._handler.refuse(self, delivery, "", str(error), address)
            return
        self._handler.received(self, delivery, message, address)

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """See `Handler`."""
        self._connection = self._links = None
        if not self._over.done():
            self._over.set_result(why)
