"""Changes devices over AMQP, at any bridge."""

import asyncio
import uuid
from typing import Any

from fogline.address import DeviceAddress
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.errors import SlowDown, Unreachable
from fogline.message import Message
from fogline_cloud.bridge_exchange import BridgeExchange, ask_bridge


class _Change(BridgeExchange[Outcome]):
    """One attempt to send a change."""

    def __init__(self, tenant: str, message: Message) -> None:
        super().__init__()
        self._address = DeviceAddress(tenant, "")
        self._message = message

    def begin(self, connection: AmqpConnection, session: Any) -> None:
        sender = connection.open_sender(session, "devices", str(self._address), Share(), {})
        sender.send(self._message).add_done_callback(self._on_outcome)

    def _on_outcome(self, sent: "asyncio.Future[Outcome]") -> None:
        if sent.cancelled() or sent.exception() is not None or self.answer.done():
            return  # the end of the link or the connection has said why
        outcome = sent.result()
        if outcome.state in (DeliveryState.ACCEPTED, DeliveryState.REJECTED):
            self.answer.set_result(outcome)
        else:
            self.fail(SlowDown(str(outcome)))


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

    def make() -> _Change:
        return _Change(address.tenant, message)

    try:
        return await ask_bridge(bridge, address.tenant, make, security, limit_s=limit_s, answer_s=limit_s)
    except (Unreachable, SlowDown) as error:
        raise Unreachable(f"no bridge at {bridge} has taken the change: {error}") from None
