"""Says hello on one connection: to the bridge itself, or behind a router or broker to the one that owns the gateway's shard."""

import asyncio
import uuid
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

from fogline import address
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.errors import SlowDown, Unreachable
from fogline.gateway import hello
from fogline.gateway.signed_session import CHALLENGE
from fogline.message import Message
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.uplink.statistics_sender import ReportSender
from fogline_edge.uplink.via.signed_line import SignedLine
from fogline_edge.uplink.way import Way

HELLO_S = 30.0
"""Time that the bridge has to answer hello: it may have to take ownership of the shard first."""
CONTROL_SHARE = Share(strict=0)
CONTROL_CREDIT = 32
"""Limit of commands in flight to this gateway."""
VERSION = version("fogline-edge")  # once: the lookup reads the disk, and leaves a list of all packages in a reference cycle
T = TypeVar("T")


async def until_over(
    future: "asyncio.Future[T]", over: "asyncio.Future[str]", limit_s: float, blamed: Callable[[Unreachable], Unreachable]
) -> T:
    """Return a future's result. Raises `Unreachable`, as `blamed` has it, after `limit_s` or once the connection is over."""
    waited: list[asyncio.Future[Any]] = [future, over]
    done, _ = await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    if future in done:
        return future.result()
    raise blamed(Unreachable(over.result() if done else f"the bridge did not answer in {limit_s:.0f} s"))


class HelloExchange:
    """Hello and its answer. `over`: the reason for the end of the connection. `line`: signs, behind a router or a broker.

    `begin_credentials`: returns the public key for the credentials of devices on this connection, "" for none.
    """

    def __init__(
        self,
        outbox: Outbox,
        way: Way,
        over: "asyncio.Future[str]",
        line: SignedLine | None,
        begin_credentials: Callable[[], str],
    ) -> None:
        self._id = uuid.uuid4()
        self.epoch = line.epoch if line is not None else self._id.hex
        """Names this hello. Batches that follow carry it."""
        self._outbox, self._way, self._over, self._line = outbox, way, over, line
        self._begin_credentials = begin_credentials
        self._answer: asyncio.Future[tuple[Message, hello.Welcome]] = asyncio.get_running_loop().create_future()
        self._sender: Sender | None = None

    @property
    def reports(self) -> ReportSender:
        """The link for statistics, once hello is said."""
        assert self._sender is not None
        return self._sender if self._line is None else self._line.reports

    def expects(self, message: Message) -> bool:
        """Return True if a message answers the hello that was sent last."""
        return message.correlation_id == self._id and not self._answer.done()

    def answered(self, message: Message, welcome: hello.Welcome) -> None:
        """Take the answer."""
        self._answer.set_result((message, welcome))

    async def say(self, connection: AmqpConnection) -> hello.Welcome:
        """Return the bridge's answer. Raises `Unreachable` and `SlowDown`."""
        tenant, gateway = self._outbox.tenant, self._outbox.gateway
        session, here = connection.open_session(), str(address.Control(tenant, gateway))
        connection.open_receiver(session, "control", here, CONTROL_CREDIT, capabilities=self._way.capabilities)
        body = hello.encode_hello(await self._hello())

        def attach(name: str, shard: int | None = None) -> Sender:
            place = str(address.HelloAddress(tenant, shard))
            return connection.open_sender(session, name, place, CONTROL_SHARE, {}, capabilities=self._way.capabilities)

        def request() -> Message:
            return Message(body=body, content_type=hello.HELLO_CONTENT_TYPE, reply_to=here, correlation_id=self._id)

        self._sender = attach("hello")
        if self._line is None:
            self._sender.send(request())
            return (await until_over(self._answer, self._over, HELLO_S, self._way.blamed))[1]
        return await self._say_signed(self._line, attach, request)

    async def _say_signed(
        self, line: SignedLine, attach: Callable[[str, int], Sender], request: Callable[[], Message]
    ) -> hello.Welcome:
        """Ask any bridge for the shard, ask the shard's owner for a challenge, and say hello with it."""
        assert self._sender is not None
        answer, welcome = await self._ask(self._sender, line, request)
        if not welcome.shards:  # a refusal
            return welcome
        self._sender = attach("hello-shard", welcome.shard)
        line.reports.link = self._sender
        if CHALLENGE not in answer.properties:  # of a bridge that does not own the shard
            answer, welcome = await self._ask(self._sender, line, request)
        if (challenge := answer.properties.get(CHALLENGE)) is None:
            raise SlowDown(f"the bridge refuses: {welcome.refused}", retry_after_s=welcome.retry_after_s)
        return (await self._ask(self._sender, line, request, str(challenge)))[1]

    async def _ask(
        self, sender: Sender, line: SignedLine, request: Callable[[], Message], challenge: str = ""
    ) -> tuple[Message, hello.Welcome]:
        """Send a hello, and return the answer to it and to no other one."""
        self._id, self._answer = uuid.uuid4(), asyncio.get_running_loop().create_future()
        sender.send(line.hello(request(), challenge)).add_done_callback(self._passed_on)
        return await until_over(self._answer, self._over, HELLO_S, self._way.blamed)

    def _passed_on(self, passed: "asyncio.Future[Outcome]") -> None:
        """End the wait for an answer if the router has passed hello on to no bridge, or a bridge has refused it."""
        if passed.cancelled() or passed.exception() is not None or self._answer.done():
            return
        if (outcome := passed.result()).state is not DeliveryState.ACCEPTED:
            self._answer.set_exception(self._way.blamed(Unreachable(f"no bridge has taken hello: {outcome}")))

    async def _hello(self) -> hello.Hello:
        streams = [hello.OpenStream(each.stream, each.lane) for each in await self._outbox.streams.pending()]
        return hello.Hello(
            protocol=hello.PROTOCOL,
            version=VERSION,
            gateway=self._outbox.gateway,
            beacon=self._outbox.clock.beacon(),
            streams=streams,
            epoch=self.epoch,
            copy=await self._outbox.copy.number(),
            journal=self._outbox.journal,
            credentials_key=self._begin_credentials(),
        )
