"""The connection of one peer to another bridge: this bridge opens it, and sends the peer's messages there in its name.

The other bridge sees the same principal, so that rights, quotas, ids of commands and reply addresses are the same at both.
"""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from fogline.address import CommandResponse
from fogline.amqp.client import AmqpClient, Settle
from fogline.amqp.events import Link
from fogline.amqp.outcome import MODIFIED, RELEASED, Outcome
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.errors import NotSent, Unreachable
from fogline.message import Message
from fogline_cloud.access.principal import Principal

REPLY_CREDIT = 32
"""Replies that the other bridge may send before the peer has settled them."""
FORWARDED_BY = "forwarded-by"
"""Property of a connection: the bridge that has opened it for another peer. What comes on it is not forwarded again."""


class Upstream:
    """A connection to another bridge, in the name of `principal`. Used on the loop.

    `replies` returns the peer's own link for a reply address, if it listens. `on_closed` is called once, last.
    """

    def __init__(
        self,
        principal: Principal,
        by: str,
        security: ClientSecurity,
        replies: Callable[[CommandResponse], Sender | None],
        on_closed: Callable[["Upstream"], None],
    ) -> None:
        proof = {"tenant": principal.tenant, "kind": principal.kind.value, "proof": principal.proof, FORWARDED_BY: by}
        self._client = AmqpClient(principal.name, proof, security)
        self._replies = replies
        self._on_closed = on_closed
        self._attached = asyncio.Event()  # or over
        self._addresses: set[CommandResponse] = set()
        self._listening: dict[CommandResponse, Link] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, host: str, port: int) -> None:
        """Begin to connect to the bridge at `host`:`port`."""
        self._task = asyncio.create_task(self._run(host, port), name=f"upstream {host}:{port}")
        self._task.add_done_callback(self._end)

    async def _run(self, host: str, port: int) -> None:
        with contextlib.suppress(Unreachable):
            async with self._client as client:
                await client.open(host, port)
                client.attach("forwarded")
                self._attached.set()
                for address in self._addresses:
                    self.listen(address)
                await asyncio.wait([client.over])

    def _end(self, _: "asyncio.Task[None]") -> None:
        self._attached.set()
        self._on_closed(self)

    async def send(self, message: Message, ends_ms: int | None) -> Outcome:
        """Send a message. Returns its outcome: RELEASED if the bridge cannot have it, MODIFIED if it may. Safe to cancel.

        `ends_ms`: the end of its time to live on this machine's monotonic clock.
        """
        await self._attached.wait()
        try:
            return await self._client.send(message, ends_ms)
        except NotSent:
            return RELEASED
        except Unreachable:
            return MODIFIED

    def listen(self, address: CommandResponse) -> None:
        """Receive the replies for an address, for the peer."""
        self._addresses.add(address)
        link = self._listening.get(address)
        if self._attached.is_set() and (link is None or link.closed):
            name, take = f"replies {address.reply_id}", partial(self._pass_on, address)
            with contextlib.suppress(Unreachable):
                self._listening[address] = self._client.receive(name, str(address), REPLY_CREDIT, take, optional=True)

    def unlisten(self, address: CommandResponse) -> None:
        """Receive no more replies for an address."""
        self._addresses.discard(address)
        if (link := self._listening.pop(address, None)) is not None:
            self._client.detach(link, "the peer listens no longer")

    def close(self) -> None:
        """End the connection."""
        self._client.close()
        if self._task is not None:
            self._task.cancel()

    def _pass_on(self, address: CommandResponse, data: bytes, settle: Settle) -> None:
        """Pass a reply on to the peer, and the peer's outcome back."""

        def on_outcome(future: "asyncio.Future[Outcome]") -> None:
            is_lost = future.cancelled() or future.exception() is not None
            settle(RELEASED if is_lost else future.result())

        sender = self._replies(address)
        if sender is None:
            settle(RELEASED)
        else:
            sender.send_encoded(data).add_done_callback(on_outcome)
