"""Messages of one connection that wait to be sent or to be settled by the peer."""

import asyncio
from collections.abc import Callable

from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import Outcome
from fogline.amqp.scheduler import CHUNK_BYTES, Scheduler, Share
from fogline.amqp.wire import encode
from fogline.errors import NotSent, Unreachable
from fogline.message import Message

DRAIN_S = 0.5
"""Time in which a message counts as there when a peer drains its credit. A message may come from Kafka in that time."""


class Sender:
    """A sending link. `credit`: the number of messages that the peer takes at present. `on_credit`: called when it changes."""

    def __init__(self, queues: "SendQueues", link: Link, on_credit: Callable[[], None]) -> None:
        self.link = link
        self.on_credit = on_credit
        self.credit = 0
        self._queues = queues

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """Queue one message. The future is its outcome. Cancelling the future does not take the message back.

        It fails with `Unreachable` if the link or the connection ends first: the message may have arrived or not. With
        `NotSent` it has not.
        """
        return self.send_encoded(encode(message))

    def send_encoded(self, data: bytes) -> "asyncio.Future[Outcome]":
        """Queue the bytes of one message, as `send`."""
        return self._queues.put(self, data)

    @property
    def queued(self) -> int:
        """Number of messages that the connection has not taken whole."""
        return self._queues.queued(self.link)

    @property
    def room(self) -> int:
        """Number of further messages that the peer takes, beside those that are queued."""
        return self._queues.room(self.link)

    @property
    def closed(self) -> bool:
        """True if the link has ended."""
        return self.link.closed


class SendQueues:
    """The queues of all sending links of a connection. `turn` is called when there is something to send. Used on the loop."""

    def __init__(self, engine: Engine, turn: Callable[[], None]) -> None:
        self._links = engine.links
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._scheduler: Scheduler[Link, int] = Scheduler()
        self._senders: dict[Link, Sender] = {}
        self._futures: dict[int, asyncio.Future[Outcome]] = {}
        self._on_wire: dict[Delivery, int] = {}
        self._current: dict[Link, Delivery] = {}
        self._last_token = 0
        self._ended = False

    def __len__(self) -> int:
        """Count the messages that the peer has not settled, including those that wait to be sent."""
        return len(self._futures)

    def add(self, link: Link, share: Share, on_credit: Callable[[], None] = lambda: None) -> Sender:
        """Add a sending link."""
        sender = self._senders[link] = Sender(self, link, on_credit)
        self._scheduler.add(link, share)
        return sender

    def drop(self, link: Link) -> None:
        """Remove a link that has ended: its messages fail with `Unreachable`."""
        if self._senders.pop(link, None) is None:
            return
        self._current.pop(link, None)
        tokens = set(self._scheduler.remove(link))
        tokens |= {token for delivery, token in self._on_wire.items() if delivery.link is link}
        self._fail(tokens, f"link {link.name} is closed")
        self._on_wire = {delivery: token for delivery, token in self._on_wire.items() if token not in tokens}

    def put(self, sender: Sender, data: bytes) -> "asyncio.Future[Outcome]":
        """See `Sender.send`."""
        future: asyncio.Future[Outcome] = self._loop.create_future()
        future.add_done_callback(_retrieve)
        if self._ended or sender.closed:
            future.set_exception(NotSent(f"link {sender.link.name} is closed"))
            return future
        self._last_token += 1
        self._futures[self._last_token] = future
        self._scheduler.offer(sender.link, self._last_token, data)
        self._turn()
        return future

    def queued(self, link: Link) -> int:
        """See `Sender.queued`."""
        return self._scheduler.waiting(link)

    def room(self, link: Link) -> int:
        """See `Sender.room`."""
        return self._scheduler.room(link)

    def hand_over(self) -> bool:
        """Give proton the next chunk. Returns True if there was one."""
        chunk = self._scheduler.next(lambda link: self._links.has_room(link, CHUNK_BYTES))
        if chunk is None:
            return False
        if chunk.first:
            delivery = self._current[chunk.link] = self._links.begin(chunk.link)
            self._on_wire[delivery] = chunk.token
        self._links.send(self._current[chunk.link], chunk.data.tobytes(), last=chunk.last)
        return True

    def settled(self, delivery: Delivery, outcome: Outcome) -> None:
        """Complete a message that the peer has settled."""
        token = self._on_wire.pop(delivery, None)
        if token is not None and not (future := self._futures.pop(token)).done():
            future.set_result(outcome)

    def set_credit(self, link: Link, credit: int, *, drain: bool = False) -> None:
        """Set the number of messages that the peer takes on a link; with `drain`, only of those that are there now."""
        if (sender := self._senders.get(link)) is not None:
            sender.credit = credit
            self._scheduler.set_credit(link, credit)
            sender.on_credit()
            if drain and credit > 0:
                self._loop.call_later(DRAIN_S, self._give_back, link)

    def _give_back(self, link: Link) -> None:
        """Give back the credit of a link whose peer asked for it, after what was there has been sent."""
        if self._ended or link not in self._senders:
            return
        if self._scheduler.waiting(link):
            self._loop.call_later(DRAIN_S, self._give_back, link)
        elif self._links.drained(link):
            self.set_credit(link, 0)
            self._turn()

    def end(self, why: str) -> None:
        """End with the connection: every unsettled message fails with `Unreachable`."""
        self._ended = True
        self._fail(set(self._futures), why)
        self._on_wire.clear()
        self._senders.clear()
        self._turn = lambda: None  # breaks the reference cycle with the connection

    def _fail(self, tokens: set[int], why: str) -> None:
        begun = set(self._on_wire.values())
        for token in tokens:
            future = self._futures.pop(token, None)
            if future is not None and not future.done():
                future.set_exception(Unreachable(why) if token in begun else NotSent(why))


def _retrieve(future: "asyncio.Future[Outcome]") -> None:
    """Mark the exception as retrieved: a caller may send without waiting, and asyncio would log a traceback."""
    if not future.cancelled():
        future.exception()
