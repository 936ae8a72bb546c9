"""Who waits for which device: one command a device under way, the others in the order in which they came. No IO."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from fogline.command import Command, State
from fogline_edge.adapters.port import Executor

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


@dataclass(slots=True, eq=False)
class Task:
    """One command that is not over. `state` is what the journal has, or will have after what is being committed.

    `doubts`: how many attempts ended without anyone knowing whether the device got the command. Above 0, `state` stays
    `SENDING` while the command waits for the next attempt, because `QUEUED` says that the device never saw it.
    """

    command: Command
    state: State
    timer: asyncio.TimerHandle | None = None
    doubts: int = 0


@dataclass(slots=True)
class _Line:
    """`retry_at_s`: the first command of the queue was put back and is not tried again before this time of the loop.

    `pause_s`: the last pause; it doubles with each failed attempt in a row.
    """

    queued: deque[Task] = field(default_factory=deque)
    current: Task | None = None
    executor: Executor | None = None
    retry_at_s: float = 0.0
    pause_s: float = 0.0

    def free(self, now_s: float) -> bool:
        return self.executor is not None and self.current is None and now_s >= self.retry_at_s

    def end_pause(self) -> None:
        self.retry_at_s = self.pause_s = 0.0


class Lines:
    """By device. One that nobody reaches and nobody waits for takes no room."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def executor(self, device: str) -> Executor | None:
        """Through whom a device is reached."""
        line = self._lines.get(device)
        return line.executor if line else None

    def reach(self, device: str, by: Executor) -> None:
        """A device is reached through `by` from now on."""
        line = self._lines.setdefault(device, _Line())
        line.executor = by
        line.end_pause()

    def lose(self, device: str, by: Executor) -> None:
        """A device is not reached through `by` any more."""
        line = self._lines.get(device)
        if line is not None and line.executor is by:
            line.executor = None
            self._tidy(device)

    def idle(self, device: str, now_s: float) -> bool:
        """Return True if a command for this device would begin at once."""
        line = self._lines.get(device)
        return line is not None and line.free(now_s) and not line.queued

    def begin(self, task: Task) -> None:
        """This one is under way."""
        self._lines.setdefault(task.command.device, _Line()).current = task

    def queue(self, task: Task) -> None:
        """To the end of its device's line."""
        self._lines.setdefault(task.command.device, _Line()).queued.append(task)

    def put_back(self, task: Task, now_s: float) -> float:
        """Move a command to the front of its device's queue. Returns the pause in seconds before the next attempt."""
        line = self._lines.setdefault(task.command.device, _Line())
        if line.current is task:
            line.current = None
        line.queued.appendleft(task)
        line.pause_s = min(LONGEST_PAUSE_S, 2 * line.pause_s) or FIRST_PAUSE_S
        line.retry_at_s = now_s + line.pause_s
        return line.pause_s

    def next(self, device: str, now_s: float) -> Task | None:
        """The command that begins now, if one may; it is under way from now on."""
        line = self._lines.get(device)
        if line is None or not line.free(now_s) or not line.queued:
            self._tidy(device)
            return None
        line.current = line.queued.popleft()
        return line.current

    def is_current(self, task: Task) -> bool:
        """Return True if this command is under way."""
        line = self._lines.get(task.command.device)
        return line is not None and line.current is task

    def waits(self, task: Task) -> bool:
        """Return True if this command is in its device's queue."""
        line = self._lines.get(task.command.device)
        return line is not None and task in line.queued

    def leave(self, task: Task) -> bool:
        """Remove a command that is under way or waits. Returns True if the next one of its device may begin."""
        line = self._lines.get(task.command.device)
        if line is None:
            return False
        was_next = line.current is task or bool(line.queued and line.queued[0] is task)
        if line.current is task:
            line.current = None
        elif task in line.queued:
            line.queued.remove(task)
        if was_next:
            line.end_pause()
        self._tidy(task.command.device)
        return was_next

    def _tidy(self, device: str) -> None:
        line = self._lines.get(device)
        if line is not None and line.executor is None and line.current is None and not line.queued:
            del self._lines[device]
