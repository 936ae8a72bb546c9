"""Sends the gateway's statistics to the bridge while a connection lasts (see `fogline.gateway.gateway_statistics`)."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fogline.amqp.outcome import Outcome
from fogline.errors import FoglineError
from fogline.gateway.gateway_statistics import STATISTICS_CONTENT_TYPE, GatewayStatistics, encode_statistics
from fogline.message import Message

ReadStatistics = Callable[[], GatewayStatistics]
"""Return the present statistics. Called on a thread; raises `FoglineError` if the outbox cannot be read at the moment."""


class ReportSender(Protocol):
    """A link for statistics."""

    @property
    def closed(self) -> bool:
        """True if the link has ended."""

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """See `fogline.amqp.sending.Sender.send`."""


async def send_statistics(sender: ReportSender, read: ReadStatistics, every_s: float) -> None:
    """Send now and at an interval. Ends when the link is closed. A message that is not settled defers the next one."""
    while not sender.closed:
        try:
            statistics = await asyncio.to_thread(read)
        except (FoglineError, OSError, ValueError):  # numbers that cannot be read must not end the connection
            statistics = None
        if statistics is not None and not sender.closed:
            await sender.send(Message(body=encode_statistics(statistics), content_type=STATISTICS_CONTENT_TYPE))
        await asyncio.sleep(every_s)
