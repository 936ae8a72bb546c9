"""Changes devices over AMQP, at any bridge."""

import uuid

from fogline.address import DeviceAddress
from fogline.amqp.client import AmqpClient
from fogline.amqp.outcome import DeliveryState, Outcome
from fogline.amqp.security import ClientSecurity
from fogline.errors import SlowDown, Unreachable
from fogline.message import Message
from fogline_cloud.bridge_exchange import ask_bridge


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

    async def ask(client: AmqpClient) -> Outcome:
        client.attach("devices", str(DeviceAddress(address.tenant, "")))
        outcome = await client.send(message)
        if outcome.state in (DeliveryState.ACCEPTED, DeliveryState.REJECTED):
            return outcome
        raise SlowDown(str(outcome))

    try:
        return await ask_bridge(bridge, address.tenant, ask, security, limit_s=limit_s, answer_s=limit_s)
    except (Unreachable, SlowDown) as error:
        raise Unreachable(f"no bridge at {bridge} has taken the change: {error}") from None
