"""The links of one connection of a bridge to a router or broker: what it receives from, and one link to each gateway."""

from collections.abc import Sequence

from fogline.address import Address, Control, HelloAddress, IngestAddress
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.events import Link
from fogline.amqp.outcome import NOT_ALLOWED, Condition
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender

HELLO_CREDIT = 64
SHARD_CREDIT = 128
"""Batches of one shard's gateways that are not settled with the router or broker."""


class ViaLinks:
    """The links. `name`: of this bridge. `capabilities`: asked of each address. Used on the loop."""

    def __init__(self, connection: AmqpConnection, name: str, tenant: str, capabilities: Sequence[str]) -> None:
        self._connection, self._name, self._tenant, self._capabilities = connection, name, tenant, capabilities
        self._receiving, self._sending = connection.open_session(), connection.open_session()
        self._receivers: dict[Address, Link] = {}
        self._addresses: dict[Link, Address] = {}
        self._controls: dict[str, Sender] = {}

    def serve(self, shards: frozenset[int]) -> None:
        """Attach the receiving links that are missing, and detach those of shards that are another bridge's."""
        wanted: dict[Address, int] = {HelloAddress(self._tenant): HELLO_CREDIT}
        for shard in sorted(shards):
            wanted[HelloAddress(self._tenant, shard)] = HELLO_CREDIT
            wanted[IngestAddress(self._tenant, shard)] = SHARD_CREDIT
        for address in self._receivers.keys() - wanted.keys():
            link = self._receivers.pop(address)
            del self._addresses[link]
            self._connection.refuse_link(link, Condition(NOT_ALLOWED, "the shard is not here any more"))
        for address in [each for each in wanted if each not in self._receivers]:
            name, credit = f"{self._name} {address}", wanted[address]
            link = self._connection.open_receiver(self._receiving, name, str(address), credit, capabilities=self._capabilities)
            self._receivers[address] = link
            self._addresses[link] = address

    def address_of(self, link: Link) -> Address | None:
        """Return the address from which a link receives, None for one that is not used any more."""
        return self._addresses.get(link)

    def control(self, gateway: str) -> Sender:
        """Return the link to a gateway. With a router it has credit while the gateway is there."""
        sender = self._controls.get(gateway)
        if sender is None or sender.closed:
            name, address = f"control {gateway}", str(Control(self._tenant, gateway))
            sender = self._controls[gateway] = self._connection.open_sender(
                self._sending, name, address, Share(strict=0), {}, capabilities=self._capabilities
            )
        return sender

    def release(self, gateway: str) -> None:
        """End the link to a gateway that is gone."""
        if (sender := self._controls.pop(gateway, None)) is not None:
            self._connection.refuse_link(sender.link, Condition(NOT_ALLOWED, "the gateway is gone"))
