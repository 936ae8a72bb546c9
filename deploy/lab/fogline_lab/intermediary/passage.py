"""Links of a router, and the messages that pass from one to another."""

from dataclasses import dataclass, field
from typing import Any

import proton

from fogline_lab.intermediary.amqp_socket import AmqpSocket
from fogline_lab.intermediary.outgoing_queues import Outgoing


@dataclass(eq=False)
class Ingress:
    """A link on which a peer sends to `address`, or, without one, to the address in each message (anonymous relay).

    `owed`: credit that the peer gets once there is a receiver. `unfinished`: the message of which a part has come.
    `unanswered`: those whose outcome the peer does not know, by proton's delivery.
    """

    socket: AmqpSocket
    native: Any
    address: str
    owed: int = 0
    unfinished: "Parcel | None" = None
    unanswered: dict[Any, "Parcel"] = field(default_factory=dict)

    def grant(self, credit: int) -> None:
        """Let the peer send so many more messages."""
        self.native.drain_mode = False
        self.native.flow(credit)
        self.socket.soon()

    def drain(self) -> None:
        """Ask the peer to give its credit back."""
        self.native.drain_mode = True
        self.native.flow(0)
        self.socket.soon()


@dataclass(eq=False)
class Egress:
    """A link on which a peer receives from `address`. `unsettled`: by tag, with those that wait for its credit."""

    socket: AmqpSocket
    native: Any
    address: str
    unsettled: dict[str, "Parcel"] = field(default_factory=dict)


@dataclass(eq=False)
class Parcel:
    """One message on its way through.

    `native`: proton's delivery from the sender, None if it waits for no outcome. `settled`: it never did.
    """

    address: str
    data: bytearray
    ingress: Ingress | None = None
    native: Any = None
    complete: bool = False
    egress: Egress | None = None
    outgoing: Outgoing | None = None
    settled: bool = False


def copy_outcome(source: Any, target: Any) -> None:
    """Set the outcome that one peer gave as the outcome for another, with its condition, flags and annotations."""
    state = source.remote_state
    if state == proton.Delivery.REJECTED and source.remote.condition is not None:
        target.local.condition = source.remote.condition
    if state == proton.Delivery.MODIFIED:
        target.local.failed = source.remote.failed
        target.local.undeliverable = source.remote.undeliverable
        if source.remote.annotations:
            target.local.annotations = source.remote.annotations
    if state:
        target.update(state)


def set_outcome(target: Any, state: Any) -> None:
    """Set an outcome of the router's own."""
    if state == proton.Delivery.MODIFIED:
        target.local.failed = True
    target.update(state)
