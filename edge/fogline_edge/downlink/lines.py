"""Who waits for which device: one command a device under way, the others in the order in which they came. No IO."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from fogline.command import Command, State
from fogline_edge.adapters.port import Executor

MAX_QUEUED_A_DEVICE = 100


@dataclass(slots=True, eq=False)
class Task:
    """One command that is not over. `state` is what the journal has, or will have after what is being committed."""

    command: Command
    state: State
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Line:
    """`halted`: nothing begins until the device is reachable anew."""

    queued: deque[Task] = field(default_factory=deque)
    current: Task | None = None
    executor: Executor | None = None
    halted: bool = False

    @property
    def free(self) -> bool:
        return self.executor is not None and self.current is None and not self.halted


class Lines:
    """By device. One that nobody reaches and nobody waits for takes no room."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def executor(self, device: str) -> Executor | None:
        """Through whom a device is reached."""
        line = self._lines.get(device)
        return line.executor if line else None

    def full(self, device: str) -> bool:
        """Whether so many commands wait for a device that it takes no more."""
        line = self._lines.get(device)
        return line is not None and len(line.queued) >= MAX_QUEUED_A_DEVICE

    def reach(self, device: str, by: Executor) -> None:
        """A device is reached through `by` from now on."""
        line = self._lines.setdefault(device, _Line())
        line.executor = by
        line.halted = False

    def lose(self, device: str, by: Executor) -> None:
        """A device is not reached through `by` any more."""
        line = self._lines.get(device)
        if line is not None and line.executor is by:
            line.executor = None
            self._tidy(device)

    def idle(self, device: str) -> bool:
        """Whether a command for this device would begin at once."""
        line = self._lines.get(device)
        return line is not None and line.free and not line.queued

    def begin(self, task: Task) -> None:
        """This one is under way."""
        self._lines.setdefault(task.command.device, _Line()).current = task

    def queue(self, task: Task) -> None:
        """To the end of its device's line."""
        self._lines.setdefault(task.command.device, _Line()).queued.append(task)

    def put_back(self, task: Task) -> None:
        """To the front of its device's line, until the device is reachable anew."""
        line = self._lines.setdefault(task.command.device, _Line())
        line.halted = True
        line.queued.appendleft(task)

    def next(self, device: str) -> Task | None:
        """The command that begins now, if one may; it is under way from now on."""
        line = self._lines.get(device)
        if line is None or not line.free or not line.queued:
            self._tidy(device)
            return None
        line.current = line.queued.popleft()
        return line.current

    def is_current(self, task: Task) -> bool:
        """Whether this one is under way."""
        line = self._lines.get(task.command.device)
        return line is not None and line.current is task

    def leave(self, task: Task) -> bool:
        """It is not under way and does not wait any more. Returns whether the next one of its device may begin."""
        line = self._lines.get(task.command.device)
        if line is None:
            return False
        if task in line.queued:
            line.queued.remove(task)
        if line.current is not task:
            return False
        line.current = None
        return True

    def _tidy(self, device: str) -> None:
        line = self._lines.get(device)
        if line is not None and line.executor is None and line.current is None and not line.queued:
            del self._lines[device]
