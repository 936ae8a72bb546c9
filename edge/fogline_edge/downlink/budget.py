"""Limits of the open commands: their number, and their bytes in the outbox, in all and for one device. Pure."""

from collections import Counter

from fogline.commands.command import MAX_COMMAND_BYTES, Command

MAX_OPEN = 10_000
MAX_OPEN_A_DEVICE = 100
DEVICE_SHARE = 0.25
"""Share of the budget that the commands of one device may take, but always one command of the largest size."""
COMMAND_BYTES = 600
"""Upper limit of the journal's bytes for one command, beside its texts and its body."""
LARGEST_BYTES = MAX_COMMAND_BYTES + 4096
"""Upper limit of the journal's bytes for a command of the largest size."""


class CommandBudget:
    """Counts the open commands. `max_bytes`: limit of the bytes of all of them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._device_bytes = max(int(max_bytes * DEVICE_SHARE), LARGEST_BYTES)
        self._open: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def refusal(self, command: Command) -> str | None:
        """Return the limit that one more command would exceed, and the remedy; `None` if there is room for it."""
        device, size = command.device, size_of(command)
        if self._open[device] >= MAX_OPEN_A_DEVICE:
            return f"{MAX_OPEN_A_DEVICE} commands for {device} are open: send more once some of them are over"
        if self._open.total() >= MAX_OPEN:
            return f"{MAX_OPEN} commands are open at gateway {command.gateway}: send more once some of them are over"
        if self._bytes[device] + size > self._device_bytes:
            return f"the open commands for {device} would take more than {self._device_bytes} bytes of the outbox"
        if self._bytes.total() + size > self._max_bytes:
            what = f"the open commands at gateway {command.gateway} would take more than {self._max_bytes} bytes of the outbox"
            return f"{what}: a larger outbox.max_bytes there lets more of them wait"
        return None

    def add(self, command: Command) -> None:
        """Count a command that opens."""
        self._open[command.device] += 1
        self._bytes[command.device] += size_of(command)

    def remove(self, command: Command) -> None:
        """Stop counting a command that is over."""
        device = command.device
        self._open[device] -= 1
        self._bytes[device] -= size_of(command)
        if not self._open[device]:
            del self._open[device], self._bytes[device]


def size_of(command: Command) -> int:
    """Return about the bytes that a command takes in the journal, and in memory."""
    texts = (command.id, command.device, command.name, command.content_type or "", command.correlation)
    return COMMAND_BYTES + len(command.data) + sum(map(len, texts))
