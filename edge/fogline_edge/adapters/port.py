"""The interface between an adapter and the rest of the gateway. All methods are called on the event loop and never block it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from fogline.commands.command import Command, Reply
from fogline.errors import SlowDown
from fogline.events.event import Arrival, Receipt
from fogline_edge.rules.message import RuleMessage


class Port(Protocol):
    """The durable side of the gateway, as adapters see it."""

    @property
    def tenant(self) -> str:
        """The tenant of all devices of this gateway."""

    @property
    def gateway(self) -> str:
        """The name of this gateway."""

    def put(self, arrival: Arrival, done: Callable[[Receipt], None]) -> None:
        """Store `arrival`; `done` is called once, on the loop, after the commit that made it durable.

        Until then the device must not be acknowledged: without room or after a crash, `done` is not called. Raises `SlowDown`
        if too much waits already: the arrival is not taken, and the adapter stops reading until `when_room` calls.
        """

    @property
    def crowded(self) -> bool:
        """True while `put` would raise `SlowDown`. Then an adapter should not start work that needs `keep` or `forget`."""

    def when_room(self, call: Callable[[], None]) -> None:
        """Call `call` once, on the loop, when `put` accepts arrivals again (at the next turn if it does now)."""

    def forget(self, slot: bytes, done: Callable[[], None], number: int = 0) -> None:
        """Durably forget the last arrival of a `Retransmission`'s slot and number: its next use is a new message.

        Takes effect after every earlier `put`; `done` is called once, on the loop, after the commit.
        """

    def keep(self, key: str, value: bytes | None, done: Callable[[], None]) -> None:
        """Durably keep a small value under `key` (`None`: delete it), for the adapter's own use across restarts.

        Takes effect in the order of the calls; `done` is called once, on the loop, after the commit. Adapters limit their keys.
        """

    @property
    def events(self) -> "CommittedEvents":
        """The events of all adapters, as they are committed."""

    def kept(self, prefix: str) -> Mapping[str, bytes]:
        """Return the values kept at the start of the gateway or since, under keys that begin with `prefix`."""


class CommittedEvents(Protocol):
    """The events that are stored from now on."""

    def listen(self, call: Callable[[Sequence[bytes]], None] | None) -> None:
        """Call `call` on the loop with the events of each commit from now on, as JSON (`decode_event`). None: no more.

        Takes effect before every later `put`. There is one listener at a time.
        """

    def publish_by(self, call: Callable[[Sequence[RuleMessage]], None] | None) -> None:
        """Call `call` on the loop with the messages of rules, each once, after its commit. None: no more.

        `call` publishes each message and then drops its `key` by `Port.keep`. The gateway reports a message whose key is still
        there at its next start IN_DOUBT. Messages without a `call` wait for one.
        """


class Executor(Protocol):
    """An adapter as the downlink sees it: it carries commands to its devices."""

    def execute(self, command: Command) -> None:
        """Carry `command` to its device. The journal has committed the attempt. Must not raise or block.

        At most one command of a device is in progress. The adapter reports its progress once or more, now or later, by
        `CommandPort.taken`, `not_sent`, `lost`, `refused` and `answer`.
        """

    def abandon(self, command: Command) -> None:
        """Give `command` up, because its deadline passed: no byte that lets the device begin may leave any more.

        Called also for a command whose result the adapter has reported, or that it got before a restart. A connection on which
        such a byte waits must end. If no byte was sent, the adapter reports `not_sent` within the call.
        """


class CommandPort(Protocol):
    """Commands to devices, as adapters see them."""

    def reachable(self, device: str, by: Executor) -> None:
        """Execute the commands of `device` only by `by` from now on, the oldest waiting one at a later turn of the loop."""

    def unreachable(self, device: str, by: Executor) -> None:
        """Execute no command of `device` by `by` any more. Ignored if the device is reachable by another executor."""

    def taken(self, command_id: str) -> None:
        """Report that the protocol confirmed the command (PUBACK, PUBCOMP, a CoAP response). It ends if it wants no reply."""

    def not_sent(self, command_id: str) -> None:
        """Report that no byte of the command was sent. It is tried again after a pause, or at the next `reachable`."""

    def lost(self, command_id: str) -> None:
        """Report an unknown result: the connection ended in between.

        Only an idempotent command is sent again, after a pause or at the next `reachable`. To others an answer may still come.
        """

    def refused(self, command_id: str, why: str) -> None:
        """Report that the device cannot be given this command (too big for it, no such resource); it was not run."""

    def answer(self, device: str, command_id: str, answer: Reply, done: Callable[[Receipt], None]) -> None:
        """Store the device's answer; `done` is called once, on the loop, after the commit that made it durable.

        `STORED`: it is the command's answer. `DUPLICATE`: the same answer was stored before. `DEAD`: no open command of this
        device has this id; the answer is kept as a dead letter. Raises `SlowDown` as `Port.put` does.
        """


async def answer_when_room(commands: CommandPort, command: Command, reply: Reply) -> None:
    """Report the reply of a device as soon as there is room for it; a command without a reply is `taken`."""
    if command.reply:
        await store_when_room(commands, command.device, command.id, reply)
    else:
        commands.taken(command.id)


async def store_when_room(commands: CommandPort, device: str, command_id: str, reply: Reply) -> None:
    """Store the reply of a device as soon as there is room for it."""
    while True:
        try:
            commands.answer(device, command_id, reply, lambda _: None)  # nobody waits for the commit
        except SlowDown as error:
            await asyncio.sleep(error.retry_after_s)
        else:
            return
