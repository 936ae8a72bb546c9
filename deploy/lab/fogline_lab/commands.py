"""Command port without a journal, for tests of adapters."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fogline.commands.command import Command, Deadline, Reply
from fogline.events.event import Receipt
from fogline_edge.machine.boot import boot_id


class Executes(Protocol):
    """See `fogline_edge.adapters.port.Executor`."""

    def execute(self, command: Command) -> None:
        """Send a command to its device."""

    def abandon(self, command: Command) -> None:
        """Stop the execution: no result is awaited."""


def make_command(device: str = "lamp-1", name: str = "switch", **other: object) -> Command:
    """Make a command; any attribute may be given."""
    attributes: dict[str, object] = {
        "id": "CMD-1",
        "tenant": "acme",
        "gateway": "gw-1",
        "device": device,
        "name": name,
        "data": b'{"on":true}',
        "content_type": "application/json",
        "deadline": Deadline(boot_id(), 2**53),
    }
    return Command(**{**attributes, **other})  # type: ignore[arg-type]


class MemoryCommands:
    """Records the calls of an adapter. A test executes a command with `send`.

    `devices`: the executor of each reachable device. `told`: the calls `(name, command id)` in order; a name is `taken`,
    `not_sent`, `lost`, `refused` or `answer`. `answers` and `reasons` (of refusals): by command id. Only ids
    in `known` get the receipt `STORED`.
    """

    def __init__(self) -> None:
        self.devices: dict[str, Executes] = {}
        self.told: list[tuple[str, str]] = []
        self.answers: dict[str, Reply] = {}
        self.reasons: dict[str, str] = {}
        self.known: dict[str, str] = {}
        self._changed = asyncio.Event()

    def send(self, command: Command) -> None:
        """Execute a command through its device's executor. Raises `KeyError` if the device is not reachable."""
        self.known[command.id] = command.device
        self.devices[command.device].execute(command)

    def reachable(self, device: str, by: Executes) -> None:
        """See `Commands.reachable`."""
        self.devices[device] = by
        self._changed.set()

    def unreachable(self, device: str, by: Executes) -> None:
        """See `Commands.unreachable`."""
        if self.devices.get(device) is by:
            del self.devices[device]
        self._changed.set()

    def taken(self, command_id: str) -> None:
        """See `Commands.taken`."""
        self._note("taken", command_id)

    def not_sent(self, command_id: str) -> None:
        """See `Commands.not_sent`."""
        self._note("not_sent", command_id)

    def lost(self, command_id: str) -> None:
        """See `Commands.lost`."""
        self._note("lost", command_id)

    def refused(self, command_id: str, why: str) -> None:
        """See `Commands.refused`."""
        self.reasons[command_id] = why
        self._note("refused", command_id)

    def answer(self, device: str, command_id: str, answer: Reply, done: Callable[[Receipt], None]) -> None:
        """See `Commands.answer`."""
        if self.known.get(command_id) != device:
            receipt = Receipt.DEAD
        elif self.answers.get(command_id) == answer:
            receipt = Receipt.DUPLICATE
        else:
            receipt = Receipt.STORED
            self.answers[command_id] = answer
        self._note("answer", command_id)
        asyncio.get_running_loop().call_soon(done, receipt)

    def _note(self, what: str, command_id: str) -> None:
        self.told.append((what, command_id))
        self._changed.set()

    async def until(self, condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
        """Wait until `condition` holds; it is checked after each call. Raises `AssertionError` with `what`."""
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {limit_s:.0f} s: {what} (told: {self.told})") from None
