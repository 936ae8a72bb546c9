"""A bridge, as a gateway sees it, that accepts every batch of events. It passes the contract suite of the real bridge."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from fogline import address
from fogline.amqp.driver import AmqpConnection, listen
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, Condition, Outcome
from fogline.amqp.security import ServerSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.commands.cancel import CancelRequest, encode_cancel
from fogline.commands.command import Command, encode_command
from fogline.events.codec import decode_batch, decode_range
from fogline.events.event import Event
from fogline.gateway import hello
from fogline.message import Message
from fogline_lab.amqp import within

LIMIT_S = 60.0
T = TypeVar("T")


class AcceptingBridge:
    """A bridge with one shard. `came`: each event as often as it came, with its stream and sequence.

    It keeps the high-water marks of all streams over reconnects. A test subclasses it to change one reaction.
    """

    def __init__(self) -> None:
        self.came: list[tuple[tuple[str, int], Event]] = []
        self._marks: dict[str, hello.Mark] = {}
        self._places: dict[Link, address.Address] = {}
        self._control: Sender | None = None
        self._changed = asyncio.Event()

    async def serve(self) -> int:
        """Listen on a free port of this machine. Returns the port."""
        self._server = await listen("127.0.0.1", 0, lambda: AmqpConnection(Engine("bridge", security=ServerSecurity()), self))
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Stop listening. Connections stay open."""
        self._server.close()

    async def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait until `condition` returns something true, and return it. It is checked after each message."""

        async def wait() -> T:
            while not (found := condition()):
                self._changed.clear()
                await self._changed.wait()
            return found

        return await within(wait(), what, LIMIT_S)

    async def command(self, command: Command) -> asyncio.Future[Outcome]:
        """Send a command to the gateway. Returns the future of its outcome."""
        return await self._send(encode_command(command))

    async def cancel(self, request: CancelRequest) -> asyncio.Future[Outcome]:
        """Send a request to cancel a command. Returns the future of its outcome."""
        return await self._send(encode_cancel(request))

    async def _send(self, message: Message) -> asyncio.Future[Outcome]:
        def control() -> Sender | None:
            return self._control if self._control is not None and not self._control.closed else None

        sender = await self.until(control, "no gateway says hello")
        assert sender is not None
        return sender.send(message)

    def events(self, adapter: str = "mqtt") -> Counter[tuple[tuple[str, int], str]]:
        """Count the arrivals of each event, by its position and id."""
        return Counter((place, event.id) for place, event in self.came if event.adapter == adapter)

    def replies(self) -> list[tuple[str, str | None]]:
        """Return command and state of each reply."""
        return sorted({(event.commandid, event.commandstate) for _, event in self.came if event.commandid})

    def opened(self, connection: AmqpConnection, _peer: AmqpPeer) -> None:
        """Accept the connection."""
        connection.accept()

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Accept the link with credit. The link on which the gateway receives is the control link."""
        self._places[link] = address.parse_address(link.address)
        self._control = connection.accept_link(link, credit=64) or self._control

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Accept the message, grant one more credit, and answer a hello with the marks of its streams."""
        message = decode(data)
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        if isinstance(self._places[delivery.link], address.HelloAddress):
            assert self._control is not None
            body = self.welcome(hello.decode_hello(message.body))
            self._control.send(Message(body=body, correlation_id=message.correlation_id))
        else:
            span = decode_range(message)
            known = self._marks.get(span.stream)
            if known is None or span.last > known.hwm:
                self._marks[span.stream] = hello.Mark(span.stream, span.last, span.last, span.chain.hex())
            events = decode_batch(span, message)
            self.came += [((event.stream, event.sequence), event) for event in events]
        self._changed.set()

    def welcome(self, asked: hello.Hello) -> bytes:
        """Return the body of the answer to hello."""
        marks = [self._marks.get(each.stream) or hello.Mark(each.stream) for each in asked.streams]
        return hello.encode_hello(
            hello.Welcome(protocol=hello.PROTOCOL, shards=1, marks=marks, time_ms=time.time_ns() // 1_000_000)
        )

    def link_closed(self, _connection: AmqpConnection, _link: Link, _condition: Condition | None) -> None:
        """Have `until` check its condition."""
        self._changed.set()

    def closed(self, _connection: AmqpConnection, _why: str) -> None:
        """Forget the control link."""
        self._control = None
