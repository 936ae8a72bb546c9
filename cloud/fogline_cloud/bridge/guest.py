"""One AMQP connection to the bridge, and who serves which of its addresses."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Protocol

from fogline.address import Address
from fogline.amqp.driver import Connection
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import Outcome
from fogline.amqp.sending import Sender
from fogline.codec import Beacon
from fogline.command import Deadline
from fogline.message import Message
from fogline.principal import Principal
from fogline_cloud.bridge.queue_budget import Inflow, QueueBudget

_OVERHEAD_BYTES = 1024
"""What a queued message takes in memory beside its body, about."""


@dataclass(eq=False, slots=True)
class Guest:
    """A connection. `addresses`: of the links on which it sends.

    Of a gateway: its `shard`; `control`, where answers and commands go once it has attached there; `welcomed`, once
    its hello was answered; `answers_unsettled`: answers to hello that it has not settled.
    """

    principal: Principal
    connection: Connection
    budget: QueueBudget
    shard: int = -1
    control: Sender | None = None
    welcomed: bool = False
    answers_unsettled: int = 0
    addresses: dict[Link, Address] = field(default_factory=dict)
    inflow: Inflow = field(init=False)
    _queued: dict[Delivery, int] = field(default_factory=dict)
    _beacon: Beacon | None = None
    _beacon_at: float = 0.0

    def __post_init__(self) -> None:
        self.inflow = Inflow(self.connection)

    def queue(self, delivery: Delivery, message: Message) -> None:
        """Count a message that goes to a shard, until it is settled."""
        self._queued[delivery] = size_bytes = len(message.body) + _OVERHEAD_BYTES
        self.budget.take(self.inflow, size_bytes)

    def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Say what became of a message, and let the next one come: at once, or when the budget of queued bytes has room."""
        size_bytes = self._queued.pop(delivery, 0)
        self.connection.settle(delivery, outcome, credit=0 if size_bytes else 1)
        if size_bytes:
            self.budget.give_back(self.inflow, size_bytes, delivery.link)

    def on_answer_settled(self, _: "asyncio.Future[Outcome]") -> None:
        """An answer to hello was settled, or its link is gone."""
        self.answers_unsettled -= 1

    def heard(self, beacon: Beacon) -> None:
        """The gateway's clock, as it was when it sent what has just arrived."""
        self._beacon = beacon
        self._beacon_at = time.monotonic()

    def deadline(self, left_ms: int, known: Deadline | None = None) -> Deadline | None:
        """The end of a command on the gateway's own clock: `known`, unless the gateway has rebooted since.

        Else it is `left_ms` from now: early by the time that the gateway's last word travelled, never late.
        """
        if self._beacon is None:
            return None
        if known is not None and known.boot_id == self._beacon.boot_id:
            return known
        passed_ms = int((time.monotonic() - self._beacon_at) * 1000)
        return Deadline(self._beacon.boot_id, self._beacon.boottime_ms + passed_ms + left_ms)


class Desk(Protocol):
    """Serves some addresses. Everything is called on the loop, after the policy has said yes."""

    def attach(self, guest: Guest, link: Link, place: Address) -> None:
        """A link is wanted: accept or refuse it."""

    def received(self, guest: Guest, delivery: Delivery, message: Message, place: Address) -> None:
        """A message for an address: settle it, now or later. Raises `Poison` for one that cannot be read."""

    def detached(self, guest: Guest, link: Link) -> None:
        """A link is gone."""

    def gone(self, guest: Guest) -> None:
        """The connection is gone."""
