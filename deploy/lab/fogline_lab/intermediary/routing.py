"""Addresses of a router: which receiver gets a message, who has credit, and which outcome a sender gets."""

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import proton

from fogline_lab.intermediary.amqp_socket import AmqpSocket
from fogline_lab.intermediary.outgoing_queues import Outgoing
from fogline_lab.intermediary.passage import Egress, Ingress, Parcel, copy_outcome, set_outcome

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


class Routing:
    """What a router does with links and messages; see `fogline_lab.intermediary.router`.

    `release_next`: so many messages are released as if no receiver could be found. `modify_next`: the same with `modified`.
    `keep_outcomes`: receivers' outcomes are not passed on, as those that a killed router had not passed on.
    `forwarded`: messages that were given to a receiver's link.
    """

    def __init__(self) -> None:
        self.release_next = self.modify_next = self.forwarded = 0
        self.keep_outcomes = False
        self.senders: dict[Any, Ingress] = {}
        self.receivers: dict[Any, Egress] = {}
        self.places: defaultdict[str, AddressLinks] = defaultdict(AddressLinks)
        self._numbers = itertools.count(1)

    # --- links

    def attach_sender(self, connection: AmqpSocket, native: Any) -> None:
        """Take a link on which a peer sends."""
        sender = self.senders[native] = Ingress(connection, native, native.remote_target.address or "", LINK_CAPACITY)
        if sender.address:
            self.places[sender.address].senders.append(sender)
        self.replenish(sender, 0)

    def attach_receiver(self, connection: AmqpSocket, native: Any) -> None:
        """Take a link on which a peer receives."""
        receiver = self.receivers[native] = Egress(connection, native, native.source.address or "")
        place = self.places[receiver.address]
        place.receivers.append(receiver)
        self._pay(place)

    def link_ended(self, native: Any) -> None:
        """Forget a link: of the messages to its peer those that it had not begun to get are released, the others modified."""
        sender, receiver = self.senders.pop(native, None), self.receivers.pop(native, None)
        if sender is not None:
            self.abort(sender)
            if sender.address and sender in self.places[sender.address].senders:
                self.places[sender.address].senders.remove(sender)
            for parcel in sender.unanswered.values():
                parcel.native = None
        if receiver is not None:
            place = self.places[receiver.address]
            if receiver in place.receivers:
                place.receivers.remove(receiver)
            untouched = {each.tag for each in receiver.socket.outgoing.drop(native) if each.native is None}
            for tag, parcel in receiver.unsettled.items():
                if not self.keep_outcomes:
                    self.answer(parcel, proton.Delivery.RELEASED if tag in untouched else proton.Delivery.MODIFIED)

    def set_parted(self, address: str, *, parted: bool) -> None:
        """Lose or find the way to an address's receivers. They stay attached, and senders keep the credit that they have."""
        self.places[address].parted = parted
        self._pay(self.places[address])

    # --- messages

    def take(self, parcel: Parcel) -> None:
        """Do with what there is of a message what a router does: called for each part of it, and when it is whole."""
        self.forward(parcel)

    def forward(self, parcel: Parcel) -> None:
        """Pass on what there is of a message. The first call selects its receiver, or answers the sender."""
        if parcel.outgoing is None:
            place = self.places[parcel.address]
            if self._refused(parcel, place):
                return
            receiver = min(place.receivers, key=lambda each: len(each.unsettled))
            tag = f"{next(self._numbers):x}"
            parcel.egress, parcel.outgoing = receiver, Outgoing(receiver.native, tag, parcel.data, settled=parcel.settled)
            if not parcel.settled:
                receiver.unsettled[tag] = parcel
            receiver.socket.outgoing.send(parcel.outgoing)
            self.forwarded += 1
        parcel.outgoing.complete = parcel.complete
        if parcel.egress is not None:
            parcel.egress.socket.soon()

    def _refused(self, parcel: Parcel, place: AddressLinks) -> bool:
        """Return True, after answering, if a message goes to no receiver."""
        sender = parcel.ingress
        if self.modify_next:
            self.modify_next -= 1
            self.answer(parcel, proton.Delivery.MODIFIED)
        elif self.release_next:
            self.release_next -= 1
            self.answer(parcel, proton.Delivery.RELEASED)
        elif not place.reachable:
            self.answer(parcel, proton.Delivery.RELEASED)
            if sender is not None and sender.address:
                sender.drain()
        else:
            return False
        return True

    def abort(self, sender: Ingress) -> None:
        """Abort the message that a sender has begun and will not end."""
        parcel, sender.unfinished = sender.unfinished, None
        if parcel is not None and parcel.outgoing is not None and parcel.egress is not None:
            parcel.outgoing.aborted = True
            parcel.egress.unsettled.pop(parcel.outgoing.tag, None)
            parcel.egress.socket.soon()

    # --- outcomes and credit

    def outcome(self, native: Any) -> None:
        """Take what a receiver says of a message."""
        receiver = self.receivers.get(native.link)
        parcel = receiver.unsettled.get(native.tag) if receiver is not None else None
        if parcel is not None:
            self.judge(parcel, native)
        if native.settled:
            if receiver is not None:
                receiver.unsettled.pop(native.tag, None)
            native.settle()

    def judge(self, parcel: Parcel, native: Any) -> None:
        """Pass the outcome that a receiver gave, `native`, on to the sender."""
        if self.keep_outcomes or parcel.native is None:
            return
        copy_outcome(native, parcel.native)
        if native.settled:
            self._settle(parcel)
        elif parcel.ingress is not None:
            parcel.ingress.socket.soon()

    def answer(self, parcel: Parcel, state: Any) -> None:
        """Settle a message with an outcome of the router's own."""
        if parcel.native is not None:
            set_outcome(parcel.native, state)
            self._settle(parcel)

    def _settle(self, parcel: Parcel) -> None:
        native, parcel.native, sender = parcel.native, None, parcel.ingress
        assert sender is not None
        sender.unanswered.pop(native, None)
        if sender.unfinished is parcel:  # proton discards what still comes of it
            sender.unfinished = None
        native.settle()
        self.replenish(sender, 1)
        sender.socket.soon()

    def replenish(self, sender: Ingress, credit: int) -> None:
        """Give credit back: at once if the address has a receiver."""
        sender.owed += credit
        if sender.owed and sender.native in self.senders and (not sender.address or self.places[sender.address].reachable):
            owed, sender.owed = sender.owed, 0
            sender.grant(owed)

    def _pay(self, place: AddressLinks) -> None:
        for sender in place.senders:
            self.replenish(sender, 0)
