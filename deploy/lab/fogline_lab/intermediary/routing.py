"""Messages in a router: which receiver gets one, and which outcome its sender gets."""

import itertools
from typing import Any

import proton

from fogline_lab.intermediary.outgoing_queues import Outgoing
from fogline_lab.intermediary.passage import Egress, Ingress, Parcel, copy_outcome, set_outcome
from fogline_lab.intermediary.router_links import RouterLinks


class Routing:
    """What a router does with messages; see `fogline_lab.intermediary.router`. `links`: those of all peers.

    `release_next`: so many messages are released as if no receiver could be found. `modify_next`: the same with `modified`.
    `keep_outcomes`: receivers' outcomes are not passed on, as those that a killed router had not passed on.
    `forwarded`: messages that were given to a receiver's link.
    """

    def __init__(self) -> None:
        self.links = RouterLinks()
        self.release_next = self.modify_next = self.forwarded = 0
        self.keep_outcomes = False
        self._numbers = itertools.count(1)

    def take(self, parcel: Parcel) -> None:
        """Do with what there is of a message what a router does: called for each part of it, and when it is whole."""
        self.forward(parcel)

    def forward(self, parcel: Parcel) -> None:
        """Pass on what there is of a message. The first call selects its receiver, or answers the sender."""
        if parcel.outgoing is None:
            if self._refused(parcel):
                return
            receiver = self.choose(parcel, self.links.at[parcel.address].receivers)
            tag = f"{next(self._numbers):x}"
            parcel.egress, parcel.outgoing = receiver, Outgoing(receiver.native, tag, parcel.data, settled=parcel.settled)
            if not parcel.settled:
                receiver.unsettled[tag] = parcel
            receiver.socket.outgoing.send(parcel.outgoing)
            self.forwarded += 1
        parcel.outgoing.complete = parcel.complete
        if parcel.egress is not None:
            parcel.egress.socket.soon()

    def choose(self, parcel: Parcel, receivers: list[Egress]) -> Egress:  # noqa: ARG002 - a hostile router looks at the message
        """Select the receiver of a message: the one that has the fewest unsettled ones."""
        return min(receivers, key=lambda each: len(each.unsettled))

    def _refused(self, parcel: Parcel) -> bool:
        """Return True, after answering, if a message goes to no receiver."""
        sender = parcel.ingress
        if self.modify_next:
            self.modify_next -= 1
            self.answer(parcel, proton.Delivery.MODIFIED)
        elif self.release_next:
            self.release_next -= 1
            self.answer(parcel, proton.Delivery.RELEASED)
        elif not self.links.at[parcel.address].reachable:
            self.answer(parcel, proton.Delivery.RELEASED)
            if sender is not None and sender.address and sender.native in self.links.senders:
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

    def link_ended(self, native: Any) -> None:
        """Forget a link: of the messages to its peer those that it had not begun to get are released, the others modified."""
        sender, receiver = self.links.remove(native)
        if sender is not None:
            self.abort(sender)
            for parcel in sender.unanswered.values():
                parcel.native = None
        if receiver is not None:
            untouched = {each.tag for each in receiver.socket.outgoing.drop(native) if each.native is None}
            for tag, parcel in receiver.unsettled.items():
                if not self.keep_outcomes:
                    self.answer(parcel, proton.Delivery.RELEASED if tag in untouched else proton.Delivery.MODIFIED)

    # --- outcomes

    def outcome(self, native: Any) -> None:
        """Take what a receiver says of a message, and pass it on to the sender."""
        receiver = self.links.receivers.get(native.link)
        parcel = receiver.unsettled.get(native.tag) if receiver is not None else None
        if parcel is not None and parcel.native is not None and not self.keep_outcomes:
            copy_outcome(native, parcel.native)
            if native.settled:
                self._settle(parcel)
            elif parcel.ingress is not None:
                parcel.ingress.socket.soon()
        if native.settled:
            if receiver is not None:
                receiver.unsettled.pop(native.tag, None)
            native.settle()

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
        self.links.replenish(sender, 1)
        sender.socket.soon()
