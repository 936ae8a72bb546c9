"""Changes devices over AMQP, at any bridge."""

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from fogline.address import DeviceAddress
from fogline.amqp.driver import AmqpConnection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import NOT_ALLOWED, Condition, DeliveryState, Outcome
from fogline.amqp.refusal import refusal_in
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.errors import Misconfigured, Unreachable
from fogline.message import Message
from fogline.process.settings_file import split_endpoint

RETRY_S = 0.5
"""The pause before a change is sent again that no bridge could take at the time."""


@dataclass
class _Handler:
    """The AMQP handler of one connection with one sending link."""

    address: DeviceAddress
    sender: "asyncio.Future[Sender]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    why: str = ""

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:  # noqa: ARG002 - the handler's interface
        session: Any = connection.open_session()
        self.sender.set_result(connection.open_sender(session, "devices", str(self.address), Share(), {}))

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        connection.refuse_link(link, Condition(NOT_ALLOWED, "an operator serves no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:  # noqa: ARG002
        self.why = str(condition or "the link was closed")

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Do nothing: the bridge sends no messages on these links."""

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        self.why = self.why or why
        if not self.sender.done():
            self.sender.set_exception(Unreachable(why))


async def edit_device(
    bridge: str, address: DeviceAddress, action: str, body: bytes, *, security: ClientSecurity, limit_s: float = 30.0
) -> Outcome:
    """Send a change until a bridge has taken or rejected it, and return that outcome. Each copy has the same message id.

    Raises `Unreachable` after `limit_s`, and `Misconfigured` with the bridge's words if it refuses this operator.
    """
    message = Message(
        to=str(address),
        subject=action,
        message_id=uuid.uuid4().hex,
        content_type="application/json",
        body=body,
        durable=True,
    )
    why = "no connection"
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    outcome = await _send(bridge, address.tenant, message, security)
                except Unreachable as error:
                    why = str(error)
                else:
                    if outcome.state in (DeliveryState.ACCEPTED, DeliveryState.REJECTED):
                        return outcome
                    why = str(outcome)
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        raise Unreachable(f"no bridge at {bridge} has taken the change: {why}") from None


async def _send(bridge: str, tenant: str, message: Message, security: ClientSecurity) -> Outcome:
    host, port = split_endpoint(bridge, "bridge")
    engine = Engine(f"operator-{uuid.uuid4().hex[:12]}", hostname=host, properties={"tenant": tenant}, security=security)
    handler = _Handler(DeviceAddress(tenant, ""))
    connection = await connect(host, port, engine, handler)
    try:
        return await (await handler.sender).send(message)
    except Unreachable as error:
        if refusal := refusal_in(handler.why):
            raise Misconfigured(refusal) from None
        raise Unreachable(handler.why or str(error)) from None
    finally:
        connection.close()
        connection.abort()
