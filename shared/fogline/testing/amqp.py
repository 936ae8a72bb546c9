"""Two ends of one AMQP connection over real sockets, for tests of what speaks AMQP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fogline.amqp.driver import Connection, connect, listen
from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link, Peer
from fogline.amqp.outcome import ACCEPTED, Condition, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.message import Message

LIMIT_S = 30.0
T = TypeVar("T")


@dataclass
class End:
    """A handler that notes what happens. `answer` gives each message's outcome, `None` leaves it unsettled."""

    answer: Callable[[Message], Outcome | None] = lambda _: ACCEPTED
    credit: int = 100
    share: Share = field(default_factory=Share)
    messages: list[Message] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    link_conditions: list[Condition | None] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: asyncio.Event = field(default_factory=asyncio.Event)
    _link_came: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""
    connection: Connection | None = None
    sender: Sender | None = None

    def opened(self, connection: Connection, peer: Peer) -> None:
        """The peer opened: accept."""
        self.connection = connection
        self.peers.append(peer)
        connection.accept()
        self.is_open.set()

    def link_requested(self, connection: Connection, link: Link) -> None:
        """The peer attaches: accept, with `credit` and `share`."""
        self.links.append(link)
        self.sender = connection.accept_link(link, credit=self.credit, share=self.share)
        self._link_came.set()

    async def link_is_there(self, count: int) -> None:
        """Wait until the peer has attached `count` links."""
        while len(self.links) < count:
            self._link_came.clear()
            await self._link_came.wait()

    def link_closed(self, connection: Connection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """The peer detached."""
        self.link_conditions.append(condition)

    def received(self, connection: Connection, delivery: Delivery, data: bytes) -> None:
        """A message: note it, answer it, grant one more."""
        message = decode(data)
        self.messages.append(message)
        outcome = self.answer(message)
        if outcome is not None:
            connection.settle(delivery, outcome)
            connection.grant(delivery.link, 1)

    def closed(self, connection: Connection, why: str) -> None:  # noqa: ARG002
        """It is over."""
        self.why = why
        self.is_closed.set()


@asynccontextmanager
async def served(server: End, **engine: Any) -> AsyncIterator[int]:
    """The port of a listener whose connections are handled by `server`."""
    listener = await listen("127.0.0.1", 0, lambda: Connection(Engine("server", server=True, **engine), server))
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()


@asynccontextmanager
async def pair(client: End, server: End, **engine: Any) -> AsyncIterator[Connection]:
    """A client's connection to `server`, both open."""
    async with served(server, **engine) as port, dialled(client, port) as connection:
        yield connection


@asynccontextmanager
async def dialled(client: End, port: int) -> AsyncIterator[Connection]:
    """A client's connection to `port`, open."""
    connection = await connect("127.0.0.1", port, Engine("client", hostname="test", properties={"tenant": "t"}), client)
    await within(client.is_open.wait(), "the connection did not open")
    try:
        yield connection
    finally:
        connection.close()
        connection.abort()
        await within(client.is_closed.wait(), "the connection did not close")


async def within(awaitable: Awaitable[T], what: str, limit_s: float = LIMIT_S) -> T:
    """Wait, but not for ever."""
    try:
        return await asyncio.wait_for(awaitable, limit_s)
    except TimeoutError:
        raise AssertionError(f"{what} (in {limit_s:.0f} s)") from None
