"""Two ends of one AMQP connection over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fogline.amqp.driver import AmqpConnection, connect, listen
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, Condition, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ServerSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.message import Message

LIMIT_S = 60.0
T = TypeVar("T")


@dataclass
class End:
    """Handler that records its calls. `answer` returns the outcome of each message; with `None` it stays unsettled."""

    answer: Callable[[Message], Outcome | None] = lambda _: ACCEPTED
    credit: int = 100
    share: Share = field(default_factory=Share)
    messages: list[Message] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    link_conditions: list[Condition | None] = field(default_factory=list)
    peers: list[AmqpPeer] = field(default_factory=list)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: asyncio.Event = field(default_factory=asyncio.Event)
    _link_came: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""
    connection: AmqpConnection | None = None
    sender: Sender | None = None

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:
        """Accept the connection."""
        self.connection = connection
        self.peers.append(peer)
        connection.accept()
        self.is_open.set()

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Accept the link, with `credit` and `share`."""
        self.links.append(link)
        self.sender = connection.accept_link(link, credit=self.credit, share=self.share)
        self._link_came.set()

    async def link_is_there(self, count: int) -> None:
        """Wait until the peer has attached `count` links."""
        while len(self.links) < count:
            self._link_came.clear()
            await self._link_came.wait()

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """Record the condition of the detach."""
        self.link_conditions.append(condition)

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Record the message, settle it, grant one more credit."""
        message = decode(data)
        self.messages.append(message)
        outcome = self.answer(message)
        if outcome is not None:
            connection.settle(delivery, outcome)
            connection.grant(delivery.link, 1)

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002
        """Record the reason of the end."""
        self.why = why
        self.is_closed.set()


@asynccontextmanager
async def served(server: End, **engine: Any) -> AsyncIterator[int]:
    """Listen for connections to `server`. Yields the port."""
    listener = await listen(
        "127.0.0.1", 0, lambda: AmqpConnection(Engine("server", **{"security": ServerSecurity(), **engine}), server)
    )
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@asynccontextmanager
async def pair(client: End, server: End, **engine: Any) -> AsyncIterator[AmqpConnection]:
    """Connect `client` to `server`. Yields the client's open connection."""
    async with served(server, **engine) as port, dialled(client, port) as connection:
        yield connection


@asynccontextmanager
async def dialled(client: End, port: int) -> AsyncIterator[AmqpConnection]:
    """Connect `client` to `port`. Yields the open connection."""
    connection = await connect("127.0.0.1", port, Engine("client", hostname="test", properties={"tenant": "t"}), client)
    await within(client.is_open.wait(), "the connection did not open")
    try:
        yield connection
    finally:
        connection.close()
        connection.abort()
        await within(client.is_closed.wait(), "the connection did not close")


async def within(awaitable: Awaitable[T], what: str, limit_s: float = LIMIT_S) -> T:
    """Wait for at most `limit_s`. Raises `AssertionError` with `what`."""
    try:
        return await asyncio.wait_for(awaitable, limit_s)
    except TimeoutError:
        raise AssertionError(f"{what} (in {limit_s:.0f} s)") from None
