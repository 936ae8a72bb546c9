"""The connection of one peer to another bridge: this bridge opens it, and sends the peer's messages there in its name.

The other bridge sees the same principal, so that rights, quotas, ids of commands and reply addresses are the same at both.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from fogline.address import CommandResponse
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import NOT_ALLOWED, RELEASED, Condition, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.connection_clock import monotonic_ms, offset_of, with_time_left
from fogline.errors import Unreachable
from fogline.message import Message, Property
from fogline_cloud.access.principal import Principal

REPLY_CREDIT = 32
"""Replies that the other bridge may send before the peer has settled them."""
FORWARDED_BY = "forwarded-by"
"""Property of a connection: the bridge that has opened it for another peer. What comes on it is not forwarded again."""


class Upstream:
    """A connection to the bridge at `host`:`port`, in the name of `principal`. Used on the loop.

    `replies` returns the peer's own link for a reply address, if it listens. `on_closed` is called once, last.
    """

    def __init__(
        self,
        principal: Principal,
        by: str,
        replies: Callable[[CommandResponse], Sender | None],
        on_closed: Callable[["Upstream"], None],
    ) -> None:
        self._properties: dict[str, Property] = {
            "tenant": principal.tenant,
            "kind": principal.kind.value,
            "proof": principal.proof,
            FORWARDED_BY: by,
        }
        self._principal = principal
        self._replies = replies
        self._on_closed = on_closed
        self._opened: asyncio.Future[Sender] = asyncio.get_running_loop().create_future()
        self._connection: AmqpConnection | None = None
        self._session: Any = None
        self._offset_ms: int | None = None
        self._listening: dict[CommandResponse, Link] = {}
        self._addresses: set[CommandResponse] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self, host: str, port: int, security: ClientSecurity) -> None:
        """Begin to connect."""
        self._task = asyncio.create_task(self._connect(host, port, security), name=f"upstream {host}:{port}")

    async def _connect(self, host: str, port: int, security: ClientSecurity) -> None:
        name = self._principal.name
        engine = Engine(name, hostname=host, properties=self._properties, security=security)
        try:
            self._connection = await connect(host, port, engine, self)
        except Unreachable as error:
            self._end(str(error))

    async def send(self, message: Message, ends_ms: int | None) -> "tuple[Outcome | None, bool]":
        """Send a message. Returns its outcome, None if there is none; and True if the bridge may have it.

        `ends_ms`: the end of its time to live on this machine's monotonic clock.
        """
        try:
            sender = await asyncio.shield(self._opened)
        except Unreachable:
            return None, False
        try:
            if ends_ms is not None:
                message = with_time_left(message, ends_ms, monotonic_ms(), self._offset_ms)
            return await sender.send(message), True
        except Unreachable:
            return None, True

    def listen(self, address: CommandResponse) -> None:
        """Receive the replies for an address, for the peer."""
        self._addresses.add(address)
        if self._session is not None and address not in self._listening and self._connection is not None:
            name = f"replies {address.reply_id}"
            self._listening[address] = self._connection.open_receiver(self._session, name, str(address), REPLY_CREDIT)

    def unlisten(self, address: CommandResponse) -> None:
        """Receive no more replies for an address."""
        self._addresses.discard(address)
        link = self._listening.pop(address, None)
        if link is not None and self._connection is not None:
            self._connection.refuse_link(link, Condition(NOT_ALLOWED, "the peer listens no longer"))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection.abort()
        elif self._task is not None:
            self._task.cancel()
            self._end("the peer is gone")

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:
        """Attach the anonymous relay for messages, and a link for each reply address."""
        self._connection = connection
        self._offset_ms = offset_of(peer.properties, monotonic_ms())
        self._session = connection.open_session()
        sender = connection.open_sender(self._session, "forwarded", "", Share(), {})
        if not self._opened.done():
            self._opened.set_result(sender)
        for address in list(self._addresses):
            self.listen(address)

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Refuse: a bridge opens no links to a peer."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "a peer serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """Forget a reply link that was refused; without the link for messages the connection is of no use."""
        address = next((each for each, listening in self._listening.items() if listening is link), None)
        if address is None:
            connection.abort()
        else:
            del self._listening[address]

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Pass a reply on to the peer, and the peer's outcome back."""
        address = next((each for each, link in self._listening.items() if link is delivery.link), None)
        sender = self._replies(address) if address is not None else None
        if sender is None:
            connection.settle(delivery, RELEASED, 1)
        else:
            sender.send_encoded(data).add_done_callback(partial(self._on_outcome, delivery))

    def _on_outcome(self, delivery: Delivery, future: "asyncio.Future[Outcome]") -> None:
        if self._connection is not None and not delivery.link.closed:
            is_lost = future.cancelled() or future.exception() is not None
            self._connection.settle(delivery, RELEASED if is_lost else future.result(), 1)

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """End: what waits for the connection is told."""
        self._end(why)

    def _end(self, why: str) -> None:
        self._connection = None
        if not self._opened.done():
            self._opened.set_exception(Unreachable(why))
            self._opened.exception()  # nobody may wait for it
        self._on_closed(self)
