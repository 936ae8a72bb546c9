"""One question of an operator to a bridge, on a connection of its own with one link."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, INVALID_FIELD, NOT_ALLOWED, NOT_IMPLEMENTED, Condition
from fogline.amqp.refusal import refusal_in, refusal_of
from fogline.amqp.security import ClientSecurity
from fogline.amqp.wire import decode
from fogline.document_error import explained
from fogline.errors import FoglineError, Misconfigured, Poison, SlowDown, Unreachable
from fogline.message import Message
from fogline.process.settings_file import split_endpoint

RETRY_S = 0.5
"""The pause before a question is asked again that no bridge could answer at the time."""
R = TypeVar("R")


class BridgeExchange(ABC, Generic[R]):
    """The AMQP handler of one attempt. A subclass attaches its link in `begin`, and sets `answer`.

    `answer` fails with `Misconfigured` if the bridge refuses this operator, `Poison` if it refuses the question, `SlowDown` if
    it cannot answer at present, and `Unreachable` if the connection ends.
    """

    def __init__(self) -> None:
        self.answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def begin(self, connection: AmqpConnection, session: Any) -> None:
        """Attach the link."""

    def take(self, message: Message) -> None:
        """Take a message of the bridge."""

    def fail(self, error: FoglineError) -> None:
        """End the attempt, unless it has ended."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:  # noqa: ARG002 - the handler's interface
        """See `Handler`."""
        self.begin(connection, connection.open_session())

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """See `Handler`."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "an operator serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        """See `Handler`."""
        if condition is None:
            self.fail(Unreachable("the bridge has closed the link"))
        elif refusal := refusal_of(condition):
            self.fail(Misconfigured(refusal))
        elif condition.name in (INVALID_FIELD, NOT_IMPLEMENTED):
            self.fail(Poison("refused", condition.description))
        else:
            self.fail(SlowDown(condition.description or condition.name))

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """See `Handler`."""
        connection.settle(delivery, ACCEPTED, credit=1)
        try:
            self.take(decode(data))
        except (Poison, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.fail(Unreachable(f"a message of the bridge cannot be read: {explained(error, Any)}"))

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """See `Handler`."""
        refusal = refusal_in(why)
        self.fail(Misconfigured(refusal) if refusal else Unreachable(why))


async def ask_bridge(
    bridge: str,
    tenant: str,
    make: Callable[[], BridgeExchange[R]],
    security: ClientSecurity,
    *,
    limit_s: float,
    answer_s: float,
) -> R:
    """Ask the bridge at `host:port` until it answers; `make` returns a new attempt. Return the answer.

    An attempt that fails is repeated within `limit_s`, one without an answer ends after `answer_s`. Raises the last attempt's
    `Unreachable` or `SlowDown`, and at once `Misconfigured` and `Poison` (see `BridgeExchange`).
    """
    host, port = split_endpoint(bridge, "bridge")
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + limit_s
    while True:
        name = f"operator-{uuid.uuid4().hex[:12]}"
        engine = Engine(name, hostname=host, properties={"tenant": tenant}, security=security)
        try:
            return await _ask(host, port, engine, make(), answer_s)
        except (Unreachable, SlowDown):
            if loop.time() + RETRY_S > ends_s:
                raise
        await asyncio.sleep(RETRY_S)


async def _ask(host: str, port: int, engine: Engine, exchange: BridgeExchange[R], answer_s: float) -> R:
    connection = await connect(host, port, engine, exchange)
    try:
        async with asyncio.timeout(answer_s):
            return await exchange.answer
    except TimeoutError:
        raise Unreachable(f"no answer in {answer_s:.0f} s") from None
    finally:
        connection.close()
        connection.abort()
