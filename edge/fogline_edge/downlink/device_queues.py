"""Queues of commands, one for each device and one for the gateway itself, each in order of arrival. No IO.

One command of a queue at a time is under way.
"""

from collections import deque
from dataclasses import dataclass, field

from fogline.commands.command import Command
from fogline.commands.history import HISTORY
from fogline_edge.adapters.port import Executor
from fogline_edge.downlink.command_task import CommandTask

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
THE_GATEWAY = ""
"""Name of the queue of commands about devices that the gateway executes itself. No device has it."""


def queue_of(command: Command) -> str:
    """Return the name of a command's queue: its device, or `THE_GATEWAY`."""
    return THE_GATEWAY if command.name == HISTORY else command.device


@dataclass(slots=True)
class _DeviceQueue:
    """`retry_at_s`: earliest time of the next attempt, on the loop's clock. `pause_s`: the last pause before a retry."""

    waiting: deque[CommandTask] = field(default_factory=deque)
    current: CommandTask | None = None
    executor: Executor | None = None
    retry_at_s: float = 0.0
    pause_s: float = 0.0

    def free(self, now_s: float) -> bool:
        return self.executor is not None and self.current is None and now_s >= self.retry_at_s

    def end_pause(self) -> None:
        self.retry_at_s = self.pause_s = 0.0


class DeviceQueues:
    """The queue and the executor of each device. A device without either takes no memory."""

    def __init__(self) -> None:
        self._queues: dict[str, _DeviceQueue] = {}

    def executor(self, device: str) -> Executor | None:
        """Return the executor of a device; `None` if it is not reachable."""
        queue = self._queues.get(device)
        return queue.executor if queue else None

    def set_reachable(self, device: str, by: Executor) -> None:
        """Set the executor of a device, and end the pause before a retry."""
        queue = self._queues.setdefault(device, _DeviceQueue())
        queue.executor = by
        queue.end_pause()

    def set_unreachable(self, device: str, by: Executor) -> None:
        """Remove the executor of a device, unless the device has another one by now."""
        queue = self._queues.get(device)
        if queue is not None and queue.executor is by:
            queue.executor = None
            self._discard_if_empty(device)

    def idle(self, device: str, now_s: float) -> bool:
        """Return True if a command for this device would begin at once."""
        queue = self._queues.get(device)
        return queue is not None and queue.free(now_s) and not queue.waiting

    def begin(self, task: CommandTask) -> None:
        """Make a command the one under way."""
        self._queues.setdefault(queue_of(task.command), _DeviceQueue()).current = task

    def append(self, task: CommandTask) -> None:
        """Add a command at the end of its device's queue."""
        self._queues.setdefault(queue_of(task.command), _DeviceQueue()).waiting.append(task)

    def put_back(self, task: CommandTask, now_s: float) -> float:
        """Move a command to the front of its queue. Returns the seconds until its next attempt, twice the last pause."""
        queue = self._queues.setdefault(queue_of(task.command), _DeviceQueue())
        if queue.current is task:
            queue.current = None
        queue.waiting.appendleft(task)
        queue.pause_s = min(LONGEST_PAUSE_S, 2 * queue.pause_s) or FIRST_PAUSE_S
        queue.retry_at_s = now_s + queue.pause_s
        return queue.pause_s

    def next(self, device: str, now_s: float) -> CommandTask | None:
        """Take the first command of a device, if one may begin; it is under way from now on."""
        queue = self._queues.get(device)
        if queue is None or not queue.free(now_s) or not queue.waiting or not queue.waiting[0].stored:
            self._discard_if_empty(device)
            return None
        queue.current = queue.waiting.popleft()
        return queue.current

    def is_current(self, task: CommandTask) -> bool:
        """Return True if this command is under way."""
        queue = self._queues.get(queue_of(task.command))
        return queue is not None and queue.current is task

    def waits(self, task: CommandTask) -> bool:
        """Return True if this command is in its device's queue."""
        queue = self._queues.get(queue_of(task.command))
        return queue is not None and task in queue.waiting

    def remove(self, task: CommandTask) -> bool:
        """Remove a command that is under way or waits. Returns True if the next one of its device may begin."""
        queue = self._queues.get(queue_of(task.command))
        if queue is None:
            return False
        was_next = queue.current is task or bool(queue.waiting and queue.waiting[0] is task)
        if queue.current is task:
            queue.current = None
        elif task in queue.waiting:
            queue.waiting.remove(task)
        if was_next:
            queue.end_pause()
        self._discard_if_empty(queue_of(task.command))
        return was_next

    def _discard_if_empty(self, device: str) -> None:
        queue = self._queues.get(device)
        if queue is not None and queue.executor is None and queue.current is None and not queue.waiting:
            del self._queues[device]
