"""Behaviour of every bridge towards a gateway. The tests of a bridge subclass `BridgeContract`."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fogline import address
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.events.codec import Range
from fogline.events.event import Lane
from fogline.gateway import hello
from fogline.message import Message
from fogline_lab.amqp import End, within
from fogline_lab.events import BEACON, STREAM, make_batch
from fogline_lab.waiting import until

NAME = "gw-1"
OTHER = "00112233445566cc"
MORE_THAN_THE_FIRST_CREDIT = 100


@dataclass(frozen=True)
class Listening:
    """A bridge that serves a tenant on a port of this machine."""

    port: int
    tenant: str


class Conversation:
    """One connection of gateway `gw-1`, message by message."""

    def __init__(self, bridge: Listening, peer: End, connection: AmqpConnection) -> None:
        self._tenant = bridge.tenant
        self._peer = peer
        self._connection = connection
        self._here = str(address.Control(bridge.tenant, NAME))
        session = connection.open_session()
        connection.open_receiver(session, "control", self._here, credit=32)
        self._hello = connection.open_sender(session, "hello", str(address.HelloAddress(bridge.tenant)), Share(), {})
        self.shard = 0

    async def hello(self, *streams: str) -> hello.Welcome:
        """Say hello with these streams of telemetry. Returns the answer."""
        opened = [hello.OpenStream(each, Lane.TELEMETRY) for each in streams]
        asked = hello.Hello(protocol=hello.PROTOCOL, version="1", gateway=NAME, beacon=BEACON, streams=opened)
        number, before = uuid.uuid4(), len(self._peer.messages)
        message = Message(
            body=hello.encode_hello(asked),
            content_type=hello.HELLO_CONTENT_TYPE,
            reply_to=self._here,
            correlation_id=number,
        )
        assert await within(self._hello.send(message), "the hello is not settled") == ACCEPTED
        await until(lambda: len(self._peer.messages) > before, "the hello is not answered")
        answer = self._peer.messages[-1]
        assert answer.correlation_id == number
        welcome = hello.decode_welcome(answer.body)
        self.shard = welcome.shard
        return welcome

    def telemetry(self) -> Sender:
        """Attach a link for telemetry to the gateway's shard."""
        target = str(address.IngestAddress(self._tenant, self.shard))
        lane = Lane.TELEMETRY.value
        return self._connection.open_sender(self._connection.open_session(), lane, target, Share(), {"lane": lane})

    async def send(self, link: Sender, first: int, last: int) -> Range:
        """Send a batch, and see it accepted."""
        span, batch = make_batch(first, last, tenant=self._tenant, gateway=NAME, stream=STREAM)
        assert await within(link.send(batch), f"{first} to {last} are not settled") == ACCEPTED
        return span


@asynccontextmanager
async def connected(bridge: Listening) -> AsyncIterator[Conversation]:
    """Connect as a gateway does, for the length of a block."""
    peer = End()
    engine = Engine(NAME, hostname="127.0.0.1", properties={"tenant": bridge.tenant, "product": hello.PRODUCT})
    connection = await connect("127.0.0.1", bridge.port, engine, peer)
    await within(peer.is_open.wait(), "the connection does not open")
    try:
        yield Conversation(bridge, peer, connection)
    finally:
        connection.close()
        await within(peer.is_closed.wait(), "the connection does not close")
        connection.abort()


def mark_of(span: Range) -> hello.Mark:
    """The high-water mark of a stream after a batch."""
    return hello.Mark(span.stream, span.last, span.last, span.chain.hex())


class BridgeContract:
    """Subclass it with a fixture `listening`: a function that runs a bridge for the length of a block.

    A subclass without it fails: pytest reports that the fixture is missing.
    """

    async def test_hello_is_answered_with_a_mark_for_each_stream_and_the_time(self, listening):
        async with listening() as bridge, connected(bridge) as gateway:
            welcome = await gateway.hello(STREAM, OTHER)
        assert (welcome.protocol, welcome.refused, welcome.redirect) == (hello.PROTOCOL, "", "")
        assert welcome.marks == [hello.Mark(STREAM), hello.Mark(OTHER)]
        assert welcome.time_ms

    async def test_a_batch_is_accepted_and_its_high_water_mark_is_there_on_the_next_connection(self, listening):
        async with listening() as bridge:
            async with connected(bridge) as gateway:
                await gateway.hello(STREAM)
                span = await gateway.send(gateway.telemetry(), 1, 3)
            async with connected(bridge) as gateway:
                assert (await gateway.hello(STREAM, OTHER)).marks == [mark_of(span), hello.Mark(OTHER)]

    async def test_a_copy_of_a_batch_is_accepted_and_counts_as_nothing_new(self, listening):
        async with listening() as bridge:
            async with connected(bridge) as gateway:
                await gateway.hello(STREAM)
                link = gateway.telemetry()
                await gateway.send(link, 1, 3)
                newest = await gateway.send(link, 4, 6)
                await gateway.send(link, 1, 3)
            async with connected(bridge) as gateway:
                assert (await gateway.hello(STREAM)).marks == [mark_of(newest)]
                await gateway.send(gateway.telemetry(), 4, 6)
                assert (await gateway.hello(STREAM)).marks == [mark_of(newest)]

    async def test_credit_is_granted_again_for_each_settled_batch(self, listening):
        async with listening() as bridge, connected(bridge) as gateway:
            await gateway.hello(STREAM)
            link = gateway.telemetry()
            for number in range(1, MORE_THAN_THE_FIRST_CREDIT + 1):
                await gateway.send(link, number, number)
            assert link.credit > 0
