"""What one connection has to send: a lane for each sending link, and what became of each message."""

import asyncio
from collections.abc import Callable

from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import Outcome
from fogline.amqp.scheduler import CHUNK_BYTES, Scheduler, Share
from fogline.amqp.wire import encode
from fogline.errors import Unreachable
from fogline.message import Message


class Sender:
    """A lane of messages to the peer over one link."""

    def __init__(self, outbound: "Outbound", link: Link, lane: str) -> None:
        self.link = link
        self.lane = lane
        self.credit = 0
        self._outbound = outbound

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """Queue one message; the future is its outcome.

        It fails with `Unreachable` when link or connection end first: then it is unknown whether it arrived.
        Cancelling the future does not take the message back.
        """
        return self._outbound.queue(self, encode(message))

    @property
    def queued(self) -> int:
        """How many messages have not been handed to the connection whole: the line may be slow."""
        return self._outbound.queued(self)

    @property
    def closed(self) -> bool:
        """Whether the link is gone."""
        return self.link.closed


class Outbound:
    """All lanes of a connection. `turn` is called when there is something new to send. Used on the loop."""

    def __init__(self, engine: Engine, turn: Callable[[], None]) -> None:
        self._engine = engine
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._scheduler: Scheduler[int] = Scheduler()
        self._senders: dict[str, Sender] = {}
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._on_wire: dict[Delivery, int] = {}
        self._current: dict[str, Delivery] = {}
        self._number = 0
        self._ended = False

    def __len__(self) -> int:
        """Messages that are not settled by the peer, or still wait to be sent."""
        return len(self._waiting)

    def add(self, link: Link, share: Share) -> Sender:
        """A lane over `link`."""
        self._number += 1
        lane = f"{self._number}:{link.name}"
        sender = Sender(self, link, lane)
        self._senders[lane] = sender
        self._scheduler.add(lane, share)
        return sender

    def drop(self, link: Link) -> None:
        """The link is gone: what waited on it fails."""
        lane = next((lane for lane, sender in self._senders.items() if sender.link is link), None)
        if lane is None:
            return
        del self._senders[lane]
        self._current.pop(lane, None)
        numbers = set(self._scheduler.remove(lane))
        numbers |= {number for delivery, number in self._on_wire.items() if delivery.link is link}
        self._on_wire = {delivery: number for delivery, number in self._on_wire.items() if number not in numbers}
        self._fail(numbers, f"link {link.name} is closed")

    def queue(self, sender: Sender, data: bytes) -> "asyncio.Future[Outcome]":
        """See `Sender.send`."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        future.add_done_callback(_seen)
        if self._ended or sender.closed:
            future.set_exception(Unreachable(f"link {sender.link.name} is closed"))
            return future
        self._number += 1
        self._waiting[self._number] = future
        self._scheduler.offer(sender.lane, self._number, data)
        self._turn()
        return future

    def queued(self, sender: Sender) -> int:
        """See `Sender.queued`."""
        return self._scheduler.waiting(sender.lane)

    def hand_over(self) -> bool:
        """Give proton the next chunk. Returns whether there was one."""
        chunk = self._scheduler.next(self._may_send)
        if chunk is None:
            return False
        if chunk.first:
            delivery = self._engine.begin(self._senders[chunk.lane].link)
            self._current[chunk.lane] = delivery
            self._on_wire[delivery] = chunk.token
        self._engine.send(self._current[chunk.lane], chunk.data.tobytes(), last=chunk.last)
        return True

    def _may_send(self, lane: str) -> bool:
        return self._engine.room(self._senders[lane].link, CHUNK_BYTES)

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """The peer said what became of a message."""
        number = self._on_wire.pop(delivery, None)
        if number is not None and not (future := self._waiting.pop(number)).done():
            future.set_result(outcome)

    def credit(self, link: Link, credit: int) -> None:
        """The peer takes so many messages on a link."""
        for lane, sender in self._senders.items():
            if sender.link is link:
                sender.credit = credit
                self._scheduler.set_credit(lane, credit)

    def end(self, why: str) -> None:
        """The connection is over: everything unsettled is unknown."""
        self._ended = True
        self._fail(set(self._waiting), why)
        self._on_wire.clear()
        self._senders.clear()
        self._turn = _nothing  # no cycle is left for the garbage collector

    def _fail(self, numbers: set[int], why: str) -> None:
        for number in numbers:
            future = self._waiting.pop(number, None)
            if future is not None and not future.done():
                future.set_exception(Unreachable(why))


def _nothing() -> None:
    """Nothing is sent any more."""


def _seen(future: "asyncio.Future[Outcome]") -> None:
    """Whoever does not wait for an outcome learns of the connection's end from its handler."""
    if not future.cancelled():
        future.exception()
