"""A client's connection to a bridge: one sending link, and any number of receiving ones.

    async with AmqpClient("alice", {"tenant": "acme"}, security) as client:
        await client.open("127.0.0.1", 5672)
        client.attach("commands", "command/acme")
        outcome = await client.send(message)

A client never reconnects, and sends nothing twice: its user decides what may be repeated.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

from fogline.amqp.dial import dial
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, Condition, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.connection_clock import monotonic_ms, offset_of, with_time_left
from fogline.errors import NotSent, Unreachable
from fogline.message import Message, Property
from fogline.transport.proxy.proxy_address import ProxyAddress

CLOSE_S = 1.0
"""Time that the peer has to answer the close of the connection."""

Settle = Callable[[Outcome], None]
Take = Callable[[bytes, Settle], None]
"""Takes the bytes of a message. Calls its second argument once, now or later, with the outcome. It must not raise."""


class AmqpClient:
    """One connection under the container id `name`, used on the loop where it was made, and opened once.

    As a context manager it closes the connection after the block, also if the block is cancelled. `over` completes with the
    reason once the connection has ended, or a link that it needs: wait by `asyncio.wait([client.over])`, because a task that
    is cancelled cancels a future that it awaits. `condition`: the error with which the peer has closed that link.
    """

    def __init__(self, name: str, properties: Mapping[str, Property], security: ClientSecurity) -> None:
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.condition: Condition | None = None
        self._name = name
        self._properties = properties
        self._security = security
        self._has_opened = False
        self._answered = asyncio.Event()
        self._connection: AmqpConnection | None = None
        self._session: Any = None
        self._sender: Sender | None = None
        self._receivers: dict[Link, tuple[Take, bool]] = {}
        self._offset_ms: int | None = None  # of the peer's clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection. A cancellation ends the wait for the peer's answer."""
        if (connection := self._connection) is not None:
            connection.close()
            try:
                await asyncio.wait([self.over], timeout=CLOSE_S)
            finally:
                connection.abort()

    @property
    def why(self) -> str:
        """The reason for the end of the connection, "" before."""
        return self.over.result() if self.over.done() else ""

    async def open(self, host: str, port: int, proxy: ProxyAddress | None = None) -> None:
        """Connect, log in and wait for the peer's open frame. Safe to cancel: nothing stays open. `proxy`: see `dial`.

        Raises `Unreachable`. `why` is "" then if there was no connection.
        """
        engine = Engine(self._name, hostname=host, properties=self._properties, security=self._security)
        connection = self._connection = await dial(host, port, engine, self, proxy)
        try:
            await self._answered.wait()
        except asyncio.CancelledError:
            connection.abort()
            raise
        if not self._has_opened:
            raise Unreachable(self.why)

    def attach(self, name: str, address: str = "") -> Sender:
        """Attach the sending link to an address, or to the anonymous relay, which forwards by each message's `to`.

        Raises `Unreachable` after the end of the connection.
        """
        if self._connection is None or self.over.done():
            raise Unreachable(self.why)
        self._sender = self._connection.open_sender(self._session, name, address, Share(), {})
        return self._sender

    def receive(
        self,
        name: str,
        address: str,
        credit: int,
        take: Take,
        properties: Mapping[str, Property] | None = None,
        *,
        optional: bool = False,
    ) -> Link:
        """Attach a receiving link. The peer may send `credit` messages before they are settled.

        If the peer closes the link, the connection ends, unless the link is `optional`. Raises `Unreachable` after the end.
        """
        if self._connection is None or self.over.done():
            raise Unreachable(self.why)
        link = self._connection.open_receiver(self._session, name, address, credit, properties)
        self._receivers[link] = take, optional
        return link

    def detach(self, link: Link, why: str) -> None:
        """End a receiving link."""
        self._receivers.pop(link, None)
        if self._connection is not None:
            self._connection.refuse_link(link, Condition(NOT_ALLOWED, why))

    def send(self, message: Message, ends_ms: int | None = None) -> "asyncio.Future[Outcome]":
        """Send a message. Returns its outcome as `Sender.send` does. Raises `NotSent` if there is no sending link.

        `ends_ms`: the end of its time to live on this machine's monotonic clock.
        """
        if self._sender is None:
            raise NotSent(self.why or "not connected")
        if ends_ms is not None:
            message = with_time_left(message, ends_ms, monotonic_ms(), self._offset_ms)
        return self._sender.send(message)

    def close(self) -> None:
        """Begin to close the connection; `over` follows. Safe to call at any time."""
        if self._connection is not None:
            self._connection.close()

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:
        """See `Handler`."""
        self._offset_ms = offset_of(peer.properties, monotonic_ms())
        self._session = connection.open_session()
        self._has_opened = True
        self._answered.set()

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """See `Handler`."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "a client serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:
        """See `Handler`."""
        _, optional = self._receivers.pop(link, (None, False))
        if not optional and not self.over.done():
            self.condition = condition
            self.over.set_result(f"link {link.name} was closed: {condition or 'no reason given'}")
            connection.close()

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """See `Handler`."""
        if (receiver := self._receivers.get(delivery.link)) is not None:
            receiver[0](data, lambda outcome: connection.settle(delivery, outcome, credit=1))

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """See `Handler`."""
        self._connection = self._session = None
        if not self.over.done():
            self.over.set_result(why or "the connection has ended")
        self._answered.set()


class Inbox:
    """The messages of one receiving link, one after the other. The peer may send `credit` of them in advance.

    Raises `Unreachable` after the end of the connection.
    """

    def __init__(
        self, client: AmqpClient, name: str, address: str, credit: int, properties: Mapping[str, Property] | None = None
    ) -> None:
        self._arrived: asyncio.Queue[tuple[bytes, Settle] | None] = asyncio.Queue()
        self._client = client
        client.receive(name, address, credit, lambda *message: self._arrived.put_nowait(message), properties)
        client.over.add_done_callback(lambda _: self._arrived.put_nowait(None))

    async def next(self) -> Message:
        """Wait for the next message, and accept it. Safe to cancel: a message stays for the next call.

        Raises `Unreachable` after the end of the connection, and `Poison` or `ValueError` for an unreadable message.
        """
        found = await self._arrived.get()
        if found is None:
            raise Unreachable(self._client.why)
        data, settle = found
        settle(ACCEPTED)
        return decode(data)
