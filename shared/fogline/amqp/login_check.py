"""Tries whether a bridge lets this side in: TLS, log-in and the open frame, without a link."""

import asyncio
from dataclasses import dataclass, field

from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import NOT_ALLOWED, Condition
from fogline.amqp.refusal import refusal_in
from fogline.errors import Unreachable

LIMIT_S = 15.0
"""Time that the peer has to open the connection, and to answer its close."""


@dataclass
class _Visitor:
    """The handler of a connection that is closed as soon as it is open."""

    is_open: bool = False
    over: "asyncio.Future[str]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:  # noqa: ARG002 - the handler's interface
        self.is_open = True
        connection.close()

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        connection.refuse_link(link, Condition(NOT_ALLOWED, "this connection is being closed"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:
        """Do nothing: there are no links."""

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Do nothing: there are no links."""

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        if not self.over.done():
            self.over.set_result(why)


async def try_login(host: str, port: int, engine: Engine) -> str:
    """Connect, open and close. Returns why the peer does not let this side in, "" if it does. Raises `Unreachable`."""
    visitor = _Visitor()
    connection = await connect(host, port, engine, visitor)
    try:
        async with asyncio.timeout(LIMIT_S):
            why = await visitor.over
    except TimeoutError:
        raise Unreachable(f"{host}:{port} does not answer in {LIMIT_S:.0f} s") from None
    finally:
        connection.abort()
    return refusal_in(why) if visitor.is_open else refusal_in(why) or why
