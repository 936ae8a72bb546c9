"""Sends the messages of one list on a receiving link of a client, as the client takes them."""

import asyncio
import time
from collections.abc import Callable, Iterator

from fogline.amqp.events import Link
from fogline.amqp.outcome import Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.message import Message
from fogline_cloud.bridge.peers.peer import Peer
from fogline_cloud.listing import COMPLETE

WINDOW = 32
"""Messages that a client may leave unsettled, even if it has granted more credit."""
IDLE_S = 60.0
"""Time after which a list ends of which the client takes nothing."""


class ListSender:
    """One list. All methods run on the loop.

    `over` is called once, when the client has settled the whole list. `idle` is called if it takes nothing for `IDLE_S`.
    """

    def __init__(self, peer: Peer, link: Link, *, over: Callable[[], None], idle: Callable[[], None]) -> None:
        self._peer = peer
        self._over = over
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._messages: Iterator[Message] | None = None
        self._unsettled = 0
        self._is_complete = False  # the last message was sent
        self._moved = True  # the client has taken something since the last look
        self._waits_for_quota = False
        self._timer: asyncio.TimerHandle | None = None
        self._sender: Sender | None = None
        self._sender = peer.connection.accept_link(link, share=Share(), on_credit=self._pump)

    def begin(self, messages: Iterator[Message]) -> None:
        """Send these messages, of which the last one is `COMPLETE`. Each is made when the client has credit for it."""
        self._messages = messages
        self._look()
        self._pump()

    def stop(self) -> None:
        """Forget what was not sent. Safe to call twice."""
        self._messages = None
        if self._timer is not None:
            self._timer.cancel()

    def _pump(self) -> None:
        sender = self._sender
        while self._messages is not None and sender is not None and self._unsettled < WINDOW and sender.room > 0:
            if self._is_complete or self._owes():
                return
            message = next(self._messages)
            self._is_complete = message.subject == COMPLETE
            self._unsettled += 1
            self._peer.count(size_bytes=len(message.body))
            sender.send(message).add_done_callback(self._on_settled)

    def _owes(self) -> bool:
        """Return True if the client is over its quota: it gets the next message later."""
        owed_s = 0.0 if self._peer.use is None else self._peer.use.owed_s(time.monotonic())
        if owed_s and not self._waits_for_quota:
            self._waits_for_quota = True
            self._loop.call_later(owed_s, self._on_quota)
        return owed_s > 0

    def _on_quota(self) -> None:
        self._waits_for_quota = False
        self._moved = True
        self._pump()

    def _on_settled(self, outcome: "asyncio.Future[Outcome]") -> None:
        if outcome.cancelled() or outcome.exception() is not None:
            return  # the link has ended
        self._unsettled -= 1
        self._moved = True
        self._pump()
        if self._is_complete and not self._unsettled and self._messages is not None:
            self._over()

    def _look(self) -> None:
        """End the list if nothing was taken since the last look."""
        if not self._moved and not self._waits_for_quota:
            self._idle()
            return
        self._moved = False
        self._timer = self._loop.call_later(IDLE_S, self._look)
