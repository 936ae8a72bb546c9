"""Reads devices and commands over AMQP, from any bridge (`fogline_cloud.listing` has the form)."""

from dataclasses import dataclass
from typing import Any

import msgspec

from fogline.address import CommandAddress, DeviceAddress
from fogline.amqp.client import AmqpClient, Inbox
from fogline.amqp.security import ClientSecurity
from fogline_cloud.bridge_exchange import ask_bridge
from fogline_cloud.listing import COMPLETE, MORE, ListQuery, properties_of

LIMIT_S = 10.0
"""Time in which a bridge must begin to answer."""
ANSWER_S = 120.0
"""Time for an answer to come whole: a bridge reads commands from Kafka."""
CREDIT = 100
"""Records that the bridge may send before this side settles them."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The records that a bridge has sent, in its order, and the number of those that match beyond the limit."""

    records: list[dict[str, Any]]
    more: int


async def read_list(
    bridge: str, address: DeviceAddress | CommandAddress, query: ListQuery, security: ClientSecurity
) -> Listing:
    """Return the records at an address of the bridge at `host:port` that the query asks for. Raises as `ask_bridge`."""

    async def ask(client: AmqpClient) -> Listing:
        inbox = Inbox(client, "records", str(address), CREDIT, properties_of(query))
        records: list[dict[str, Any]] = []
        while (message := await inbox.next()).subject != COMPLETE:
            records.append(msgspec.json.decode(message.body, type=dict[str, Any]))
        more = message.properties.get(MORE)
        return Listing(records, more if isinstance(more, int) else 0)

    return await ask_bridge(bridge, address.tenant, ask, security, limit_s=LIMIT_S, answer_s=ANSWER_S)
