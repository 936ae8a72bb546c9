"""What an adapter is given: where to put what arrived, what to keep for it, and the commands for its devices.

Everything here is called on the event loop and never blocks it.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from fogline.command import Answer, Command
from fogline.event import Arrival, Receipt


class Port(Protocol):
    """The durable side, as adapters see it."""

    @property
    def tenant(self) -> str:
        """The tenant that every device of this gateway belongs to."""

    @property
    def gateway(self) -> str:
        """This gateway's name."""

    def put(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        """Store `arrival`; `done` is called once, on the loop, after the commit that made it durable.

        While there is no room the call to `done` stays out, and so must the device's acknowledgement. If the process
        ends first, `done` is never called. Raises `SlowDown` if too much waits already: then nothing was taken, and
        the adapter stops reading until `when_room` calls.
        """

    @property
    def crowded(self) -> bool:
        """So much waits for its commit that `put` would refuse any arrival: what cannot be refused should not be asked for.

        `when_room` tells when that is over.
        """

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` once, on the loop, when `put` takes arrivals again (at the next turn if it does now)."""

    def forget(self, device: str, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """Durably forget what was put under a `Retransmission`'s slot and number: its next use is a new message.

        Takes effect after everything put before it; `done` is called once, on the loop, after the commit.
        """

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        """Durably keep a small value under `key` (`None`: no longer), for the adapter's own use across restarts.

        Takes effect in the order of the calls; `done` is called once, on the loop, after the commit. The adapter bounds
        how many keys it uses.
        """

    def kept(self, prefix: str) -> Mapping[str, bytes]:
        """What was kept under keys that begin with `prefix` when the gateway started, and every `keep` since."""


class Executor(Protocol):
    """An adapter, as the commands' side sees it: it can carry commands to some devices."""

    def execute(self, command: Command) -> None:
        """Carry `command` to its device; the journal has committed that this is being tried. Must not raise or block.

        At most one command a device is under way. The adapter tells how it went, once or more, by `Commands.taken`,
        `not_sent`, `lost` and `answer`, now or later.
        """

    def abandon(self, command: Command) -> None:
        """Nobody waits for the device's answer any more (the deadline passed): what was not sent must not be sent."""


class Commands(Protocol):
    """Commands to devices, as adapters see them."""

    def reachable(self, device: str, by: Executor) -> None:
        """`device` takes commands through `by` from now on; the one that waits longest is executed, at a later turn.

        A device that was reachable through another executor is reachable through the new one only.
        """

    def unreachable(self, device: str, by: Executor) -> None:
        """`device` takes no commands through `by` any more. Passed over if it is reachable through another."""

    def taken(self, command_id: str) -> None:
        """The device's protocol confirmed that it has the command (MQTT PUBACK or PUBCOMP, a CoAP response).

        That ends a command without a reply; one with a reply goes on waiting for `answer`.
        """

    def not_sent(self, command_id: str) -> None:
        """Certain: not one byte of it was given to the device. It is tried again after a pause, or at the next `reachable`."""

    def lost(self, command_id: str) -> None:
        """Unknown: the connection ended in between.

        It is sent again only if idempotent: after a pause or at the next `reachable`, and a few times at most. Else an
        answer may still come.
        """

    def refused(self, command_id: str, why: str) -> None:
        """Certain: the device cannot be given this command (too big for it, no such resource); it was not run."""

    def answer(self, device: str, command_id: str, answer: Answer, done: Callable[[Receipt], None]) -> None:
        """The device answered; `done` is called once, on the loop, after the commit that made the answer durable.

        `STORED`: it is the command's answer. `DUPLICATE`: the same answer was there. `DEAD`: no command of this device
        has this id (or it is long over): kept as a dead letter. Raises `SlowDown` as `Port.put` does.
        """
