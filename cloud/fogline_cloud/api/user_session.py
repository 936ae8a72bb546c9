"""The AMQP connection of one user to the bridge. The bridge checks the password, and what the user may do."""

import asyncio
import logging
from collections.abc import Callable

from fogline.address import CommandResponse
from fogline.amqp.client import AmqpClient, Settle
from fogline.amqp.outcome import ACCEPTED, Outcome
from fogline.amqp.sasl import REFUSED
from fogline.amqp.security import ClientSecurity
from fogline.amqp.wire import decode
from fogline.errors import Poison, Unreachable
from fogline.message import Message

REPLY_ID = "http"
"""The reply id of all commands that come over HTTP: so a copy at another API process is the same command."""
_CREDIT = 100

_log = logging.getLogger("fogline.api")


class WrongPassword(Exception):
    """The bridge has refused the user name or the password."""


class UserSession:
    """One connection in the name of `user`. `open` it once; `on_reply` gets the replies to its commands. Used on the loop.

    `over` completes once the connection has ended.
    """

    def __init__(self, tenant: str, user: str, security: ClientSecurity, on_reply: Callable[[Message], None]) -> None:
        self.in_use = 0
        """Requests that use the connection at present."""
        self.opened_s = asyncio.get_running_loop().time()
        self._reply_address = str(CommandResponse(tenant, REPLY_ID))
        self._user = user
        self._on_reply = on_reply
        self._client = AmqpClient(user, {"tenant": tenant}, security)
        self._retired = False
        self.over = self._client.over

    @property
    def is_closed(self) -> bool:
        """True once the connection has ended."""
        return self.over.done()

    @property
    def why(self) -> str:
        """The reason for the end of the connection, "" before."""
        return str(self._client.condition or self._client.why)

    async def open(self, host: str, port: int) -> None:
        """Connect and log in. Raises `WrongPassword` and `Unreachable`. Safe to cancel: nothing stays open."""
        try:
            await self._client.open(host, port)
        except Unreachable as error:
            raise WrongPassword(str(error)) if REFUSED in str(error) else error from None
        self._client.attach("http")
        # Without this link the session goes on: the user may send events, but no commands.
        self._client.receive("http replies", self._reply_address, _CREDIT, self._take, optional=True)

    async def send(self, message: Message, ends_ms: int | None = None) -> Outcome:
        """Send a message, whose `to` is its address. Raises `Unreachable`: the bridge may have it or not. Safe to cancel.

        `ends_ms`: the end of its time to live on this machine's monotonic clock.
        """
        self.in_use += 1
        try:
            return await self._client.send(message, ends_ms)
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
        self._client.close()

    def _take(self, data: bytes, settle: Settle) -> None:
        settle(ACCEPTED)
        try:
            self._on_reply(decode(data))
        except (Poison, ValueError):
            pass
        except Exception:  # noqa: BLE001 - one reply must not end the connection of all the user's requests
            _log.exception("a reply to %s is passed over", self._user)
