"""One AMQP connection to the bridge, and the interface of the handlers that serve its links."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from fogline.address import Address
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import Condition, DeliveryState, Outcome
from fogline.amqp.scheduler import Share
from fogline.amqp.sending import Sender
from fogline.commands.command import Deadline
from fogline.errors import Poison
from fogline.events.codec import Beacon
from fogline.message import Message
from fogline_cloud.access.principal import Principal
from fogline_cloud.access.quotas import DEBT_S, Use, over_quota
from fogline_cloud.bridge.peers.queue_budget import CreditGate, QueueBudget, QueuedBytes

_OVERHEAD_BYTES = 1024  # the memory that a queued message takes beside its body, about


class PeerConnection(CreditGate, Protocol):
    """The connection of a peer: `AmqpConnection`, or what stands for it behind a router or a broker."""

    def accept_link(
        self, link: Link, *, credit: int = 0, share: Share | None = None, on_credit: Callable[[], None] = lambda: None
    ) -> Sender | None:
        """Attach to a requested link."""

    def refuse_link(self, link: Link, condition: Condition) -> None:
        """Refuse or end a link."""

    def settle(self, delivery: Delivery, outcome: Outcome, credit: int = 0) -> None:
        """Settle a received message, and let the peer send `credit` more."""

    def close(self, condition: Condition | None = None) -> None:
        """Begin to close."""

    def abort(self) -> None:
        """End at once."""


class ControlSender(Protocol):
    """The link on which a gateway gets the answer to hello, and commands."""

    @property
    def closed(self) -> bool:
        """True if it has ended."""

    def send(self, message: Message) -> "asyncio.Future[Outcome]":
        """See `Sender.send`."""


@dataclass(eq=False, slots=True)
class Peer:
    """The connection of an AMQP client. `addresses` holds the address of each of the `links` on which the client sends."""

    principal: Principal
    connection: PeerConnection
    budget: QueueBudget
    secret: str = ""  # of the token by which a gateway has logged in to enrol
    serial: str = ""  # of the peer's certificate, in hexadecimal digits
    forwarded: bool = False  # another bridge has opened the connection for the peer (`fogline_cloud.bridge.peers.forwarding`)
    addresses: dict[Link, Address] = field(default_factory=dict)
    links: set[Link] = field(default_factory=set)
    use: Use | None = None  # of its quota
    closed: bool = False
    queued: QueuedBytes = field(init=False)
    _sizes_bytes: dict[Delivery, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queued = QueuedBytes(self.connection)

    @classmethod
    def of_kafka(cls, principal: Principal) -> "Peer":
        """Return the sender of commands that are read from Kafka, which has no connection."""
        return cls(principal, cast("PeerConnection", None), cast("QueueBudget", None))

    def accept_link(self, link: Link, address: Address, credit: int) -> None:
        """Accept a link on which the peer sends."""
        self.addresses[link] = address
        self.connection.accept_link(link, credit=credit)

    def queue(self, delivery: Delivery, message: Message) -> None:
        """Count the bytes of a message that waits for a shard, a gateway or another bridge, until it is settled."""
        self._sizes_bytes[delivery] = size_bytes = len(message.body) + _OVERHEAD_BYTES
        self.budget.take(self.queued, size_bytes)

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle a message and grant credit for the next one: when quota and the budget of queued bytes have room."""
        size_bytes = self._sizes_bytes.pop(delivery, 0)
        owed_s = 0.0 if self.use is None else self.use.owed_s(time.monotonic())
        self.connection.settle(delivery, outcome, credit=0 if size_bytes or owed_s else 1)
        if size_bytes:
            self.budget.give_back(self.queued, size_bytes)
        if owed_s:
            asyncio.get_running_loop().call_later(owed_s, self._grant, delivery.link)
        elif size_bytes:
            self._grant(delivery.link)

    def settle_command(self, delivery: Delivery, outcome: Outcome) -> None:
        """Settle a command that was counted. If the bridge could not take it now, it will come again: it has not counted."""
        if outcome.state in (DeliveryState.RELEASED, DeliveryState.MODIFIED):
            self.count(commands=-1)
        self.settle(delivery, outcome)

    def _grant(self, link: Link) -> None:
        if not self.closed:
            self.budget.owe(self.queued, link)

    def count(self, *, events: int = 0, size_bytes: int = 0, commands: int = 0) -> None:
        """Count a message against the peer's quota."""
        if self.use is not None:
            self.use.count(time.monotonic(), events=events, size_bytes=size_bytes, commands=commands)

    def check_quota(self) -> None:
        """Raise `Poison` (`quota`) if the peer sends on although it got no credit for a long time."""
        if self.use is not None and (owed_s := self.use.owed_s(time.monotonic())) > DEBT_S:
            raise Poison("quota", over_quota(self.principal, owed_s))


@dataclass(eq=False, slots=True, kw_only=True)
class GatewayPeer(Peer):
    """The connection of a gateway."""

    shard_number: int
    control: ControlSender | None = None  # for welcomes and commands, once attached
    welcomed: bool = False  # a hello was answered
    journal: str = ""  # the name of the gateway's journal of commands, of its hello
    credentials_key: str = ""  # of its hello, for keys of devices (fogline.gateway.credential_transfer)
    unsettled_welcomes: int = 0
    _beacon: Beacon | None = None
    _beacon_at_s: float = 0.0

    def on_welcome_settled(self, _: "asyncio.Future[Outcome]") -> None:
        """Count a welcome that was settled, or whose link is gone."""
        self.unsettled_welcomes -= 1

    def set_beacon(self, beacon: Beacon) -> None:
        """Note the gateway's clock at the moment when it sent the message that has just arrived."""
        self._beacon = beacon
        self._beacon_at_s = time.monotonic()

    def deadline(self, left_ms: int, known: Deadline | None = None) -> Deadline | None:
        """Return `known`, or `left_ms` from now after a reboot, by the gateway's clock. Never late. None before a beacon."""
        if self._beacon is None:
            return None
        if known is not None and known.boot_id == self._beacon.boot_id:
            return known
        passed_ms = int((time.monotonic() - self._beacon_at_s) * 1000)
        return Deadline(self._beacon.boot_id, self._beacon.boottime_ms + passed_ms + left_ms)


class LinkHandler(ABC):
    """Serves the links of some addresses. The listener calls it on the loop, for links and messages that the policy allows."""

    @abstractmethod
    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """Accept or refuse a link that the peer requests."""

    @abstractmethod
    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """Take a message and settle it, now or later. Raises `Poison` if it cannot be read."""

    def detached(self, link: Link | None) -> None:  # noqa: B027 - most handlers keep nothing for a link
        """Clean up after a link that was detached, or after the links of a connection that has ended (`None`)."""
