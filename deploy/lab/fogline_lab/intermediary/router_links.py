"""Links of a router by their addresses, and the credit of those who send."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from fogline_lab.intermediary.amqp_socket import AmqpSocket
from fogline_lab.intermediary.passage import Egress, Ingress

LINK_CAPACITY = 250


@dataclass
class AddressLinks:
    """The links of one address. `parted`: the way to its receivers is lost, as between two routers."""

    receivers: list[Egress] = field(default_factory=list)
    senders: list[Ingress] = field(default_factory=list)
    parted: bool = False

    @property
    def reachable(self) -> bool:
        """True if a message to this address has a receiver."""
        return bool(self.receivers) and not self.parted


class RouterLinks:
    """All links. A sender gets `LINK_CAPACITY` credit with the first receiver of its address, and later what it gives back."""

    def __init__(self) -> None:
        self.senders: dict[Any, Ingress] = {}
        self.receivers: dict[Any, Egress] = {}
        self.at: defaultdict[str, AddressLinks] = defaultdict(AddressLinks)

    def attach_sender(self, connection: AmqpSocket, native: Any) -> None:
        """Take a link on which a peer sends."""
        sender = self.senders[native] = Ingress(connection, native, native.remote_target.address or "", LINK_CAPACITY)
        if sender.address:
            self.at[sender.address].senders.append(sender)
        self.replenish(sender, 0)

    def attach_receiver(self, connection: AmqpSocket, native: Any) -> None:
        """Take a link on which a peer receives."""
        receiver = self.receivers[native] = Egress(connection, native, native.source.address or "")
        self.at[receiver.address].receivers.append(receiver)
        self._pay(receiver.address)

    def remove(self, native: Any) -> tuple[Ingress | None, Egress | None]:
        """Forget a link. Returns what it was."""
        sender, receiver = self.senders.pop(native, None), self.receivers.pop(native, None)
        if sender is not None and sender.address:
            self.at[sender.address].senders.remove(sender)
        if receiver is not None:
            self.at[receiver.address].receivers.remove(receiver)
        return sender, receiver

    def set_parted(self, address: str, *, parted: bool) -> None:
        """Lose or find the way to an address's receivers. They stay attached, and senders keep the credit that they have."""
        self.at[address].parted = parted
        self._pay(address)

    def replenish(self, sender: Ingress, credit: int) -> None:
        """Give credit back: at once if the address has a receiver."""
        sender.owed += credit
        if sender.owed and sender.native in self.senders and (not sender.address or self.at[sender.address].reachable):
            owed, sender.owed = sender.owed, 0
            sender.grant(owed)

    def _pay(self, address: str) -> None:
        for sender in self.at[address].senders:
            self.replenish(sender, 0)
