"""Sends batches over one link to a router or a broker. The outcome of each is the one that the bridge has signed."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fogline.amqp.events import Link
from fogline.amqp.outcome import MODIFIED, UNKNOWN_STREAM, DeliveryState, Outcome, rejected
from fogline.amqp.sending import Sender
from fogline.errors import NotSent, Unreachable
from fogline.message import Message


class BatchSender(Protocol):
    """A link on which a `Pump` sends."""

    @property
    def link(self) -> Link:
        """The link."""

    @property
    def credit(self) -> int:
        """The number of messages that may be sent at present."""

    @property
    def queued(self) -> int:
        """The number of messages that the connection has not taken whole."""

    @property
    def closed(self) -> bool:
        """True if the link has ended."""

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """See `Sender.send`."""


class LaneWindow:
    """The batches of one lane: at most `size` may be in flight."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._in_flight = 0
        self._waiting: deque[Callable[[], asyncio.Future[Outcome]]] = deque()

    def __len__(self) -> int:
        """Count the batches that wait until others have outcomes."""
        return len(self._waiting)

    def put(self, send: Callable[[], "asyncio.Future[Outcome]"]) -> None:
        """Call `send` now, or when the window has room."""
        self._waiting.append(send)
        self.move()

    def move(self) -> None:
        """Send what has waited, as far as there is room."""
        while self._waiting and self._in_flight < self.size:
            self._in_flight += 1
            self._waiting.popleft()().add_done_callback(self._done)

    def _done(self, _: "asyncio.Future[Outcome]") -> None:
        self._in_flight -= 1
        self.move()


class SignedSender:
    """A sending link whose messages are signed. `sign` returns the number of a message, and its bytes' message.

    `open`: the messages without a signed outcome, by number; its owner completes them.
    """

    def __init__(self, sender: Sender, window: LaneWindow, sign: Callable[[Message], tuple[int, Message]]) -> None:
        self.open: dict[int, asyncio.Future[Outcome]] = {}
        self._sender, self._window, self._sign = sender, window, sign

    @property
    def link(self) -> Link:
        """See `BatchSender`."""
        return self._sender.link

    @property
    def credit(self) -> int:
        """See `BatchSender`. None while the bridge allows none: then no outcome is due."""
        return self._sender.credit if self._window.size else 0

    @property
    def queued(self) -> int:
        """See `BatchSender`."""
        return self._sender.queued + len(self._window)

    @property
    def closed(self) -> bool:
        """See `BatchSender`."""
        return self._sender.closed

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """See `Sender.send`. The outcome is signed by the bridge, or one that only makes the gateway send again."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_retrieve)
        self._window.put(lambda: self._send(message, future))
        return future

    def fail(self, why: str) -> None:
        """End with the link: what has no outcome is unknown."""
        for future in self.open.values():
            if not future.done():
                future.set_exception(Unreachable(why))
        self.open.clear()

    def _send(self, message: Message, future: "asyncio.Future[Outcome]") -> "asyncio.Future[Outcome]":
        if self.closed:
            future.set_exception(NotSent(f"link {self.link.name} is closed"))
            return future
        number, signed = self._sign(message)
        self.open[number] = future
        self._sender.send(signed).add_done_callback(lambda passed: self._passed_on(number, passed))
        return future

    def _passed_on(self, number: int, passed: "asyncio.Future[Outcome]") -> None:
        """Take what the router or broker answers. It proves nothing; at most the batch is sent once more, or hello is said."""
        if passed.cancelled() or (future := self.open.get(number)) is None or future.done():
            return
        if (error := passed.exception()) is not None:
            self._complete(number, future, error)
            return
        outcome = passed.result()
        if outcome.state is DeliveryState.ACCEPTED:
            return  # it was passed on, or is stored: the bridge's own outcome follows
        if outcome.state is DeliveryState.REJECTED:
            outcome = rejected(UNKNOWN_STREAM, f"{outcome.condition} {outcome.description}".strip())
        else:
            outcome = MODIFIED
        self.open.pop(number)
        future.set_result(outcome)

    def _complete(self, number: int, future: "asyncio.Future[Outcome]", error: BaseException) -> None:
        self.open.pop(number)
        future.set_exception(error)


def _retrieve(future: "asyncio.Future[Outcome]") -> None:
    """Mark the exception as retrieved: nobody may wait for the outcome any more."""
    if not future.cancelled():
        future.exception()
