"""The AMQP connection of one user to the bridge. The bridge checks the password, and what the user may do."""

import asyncio
import logging
from collections.abc import Callable

from fogline.address import CommandResponse
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, Condition, Outcome
from fogline.amqp.sasl import REFUSED
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.connection_clock import monotonic_ms, offset_of, with_time_left
from fogline.errors import Poison, Unreachable
from fogline.message import Message

REPLY_ID = "http"
"""The reply id of all commands that come over HTTP: so a copy at another API process is the same command."""
_CREDIT = 100

_log = logging.getLogger("fogline.api")


class WrongPassword(Exception):
    """The bridge has refused the user name or the password."""


class UserSession:
    """One connection in the name of `user`. `open` it once; `on_reply` gets the replies to its commands. Used on the loop."""

    def __init__(self, tenant: str, user: str, on_reply: Callable[[Message], None]) -> None:
        self.in_use = 0
        """Requests that use the connection at present."""
        self.opened_s = asyncio.get_running_loop().time()
        self._tenant = tenant
        self._user = user
        self._on_reply = on_reply
        self._sender: Sender | None = None
        self._replies: Link | None = None
        self._connection: AmqpConnection | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._retired = False
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the connection has ended."""
        self._offset_ms: int | None = None  # of the bridge's clock
        self.why = ""

    @property
    def is_closed(self) -> bool:
        """True once the connection has ended."""
        return bool(self.why)

    async def open(self, host: str, port: int, security: ClientSecurity) -> None:
        """Connect and log in. Raises `WrongPassword` and `Unreachable`."""
        engine = Engine(self._user, hostname=host, properties={"tenant": self._tenant}, security=security)
        try:
            self._connection = await connect(host, port, engine, self)
        except Unreachable as error:
            self.why = str(error)
            raise
        await self._opened

    async def send(self, message: Message) -> Outcome:
        """Send a message, whose `to` is its address. Raises `Unreachable`: the bridge may have it or not."""
        if self._sender is None or self.is_closed:
            raise Unreachable(self.why or "no connection to the bridge")
        self.in_use += 1
        try:
            if message.ttl_ms is not None:
                now_ms = monotonic_ms()
                message = with_time_left(message, now_ms + message.ttl_ms, now_ms, self._offset_ms)
            return await self._sender.send(message)
        finally:
            self.in_use -= 1
            if self._retired and not self.in_use:
                self.close()

    def retire(self) -> None:
        """Close the connection once no request uses it."""
        self._retired = True
        if not self.in_use:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and not self.is_closed:
            self._connection.close()

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:
        """Attach the link for messages, and the one for replies."""
        self._offset_ms = offset_of(peer.properties, monotonic_ms())
        session = connection.open_session()
        self._sender = connection.open_sender(session, "http", "", Share(), {})
        address = str(CommandResponse(self._tenant, REPLY_ID))
        self._replies = connection.open_receiver(session, "http replies", address, _CREDIT)
        if not self._opened.done():
            self._opened.set_result(None)

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Refuse: a bridge opens no links to a client."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "a client serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:
        """Go on without replies, if the user may send no commands; without the link for messages the connection ends."""
        if link is not self._replies:
            self.why = str(condition or "the bridge has closed the link")
            connection.close()

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Take a reply."""
        connection.settle(delivery, ACCEPTED, 1)
        try:
            self._on_reply(decode(data))
        except (Poison, ValueError):
            pass
        except Exception:  # noqa: BLE001 - one reply must not end the connection of all the user's requests
            _log.exception("a reply to %s is passed over", self._user)

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """Note why the connection has ended."""
        self.why = self.why or why or "the connection has ended"
        if not self.over.done():
            self.over.set_result(None)
        if not self._opened.done():
            is_refused = REFUSED in self.why
            self._opened.set_exception(WrongPassword(self.why) if is_refused else Unreachable(self.why))
            self._opened.exception()
