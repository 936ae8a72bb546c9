"""Reads devices and commands over AMQP, from any bridge (`fogline_cloud.listing` has the form)."""

from dataclasses import dataclass
from typing import Any

import msgspec

from fogline.address import CommandAddress, DeviceAddress
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.security import ClientSecurity
from fogline.message import Message
from fogline_cloud.bridge_exchange import BridgeExchange, ask_bridge
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


class _Reading(BridgeExchange[Listing]):
    def __init__(self, address: DeviceAddress | CommandAddress, query: ListQuery) -> None:
        super().__init__()
        self._address = address
        self._query = query
        self._records: list[dict[str, Any]] = []

    def begin(self, connection: AmqpConnection, session: Any) -> None:
        connection.open_receiver(session, "records", str(self._address), CREDIT, properties_of(self._query))

    def take(self, message: Message) -> None:
        if self.answer.done():
            return
        if message.subject == COMPLETE:
            more = message.properties.get(MORE)
            self.answer.set_result(Listing(self._records, more if isinstance(more, int) else 0))
        else:
            self._records.append(msgspec.json.decode(message.body, type=dict[str, Any]))


async def read_list(
    bridge: str, address: DeviceAddress | CommandAddress, query: ListQuery, security: ClientSecurity
) -> Listing:
    """Return the records at an address of the bridge at `host:port` that the query asks for. Raises as `ask_bridge`."""

    def make() -> _Reading:
        return _Reading(address, query)

    return await ask_bridge(bridge, address.tenant, make, security, limit_s=LIMIT_S, answer_s=ANSWER_S)
