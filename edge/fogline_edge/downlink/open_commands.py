"""The open commands of a gateway, by id, each with a timer for its deadline."""

import asyncio
from collections.abc import Callable

from fogline.commands.command import Command, CommandState
from fogline.events.codec import Beacon
from fogline_edge.downlink.budget import CommandBudget
from fogline_edge.downlink.command_task import CommandTask


class OpenCommands:
    """Commands without a terminal state, within `budget`. `on_deadline` is called on the loop, once for each command."""

    def __init__(self, max_bytes: int, now: Callable[[], Beacon], on_deadline: Callable[[CommandTask], None]) -> None:
        self._now = now
        self._on_deadline = on_deadline
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, CommandTask] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.budget = CommandBudget(max_bytes)

    def get(self, command_id: str) -> CommandTask | None:
        """Return the open command of this id."""
        return self._tasks.get(command_id)

    def get_sending(self, command_id: str) -> CommandTask | None:
        """Return the open command of this id if its state is `SENDING`."""
        task = self._tasks.get(command_id)
        return task if task is not None and task.state is CommandState.SENDING else None

    def add(self, command: Command, state: CommandState) -> CommandTask:
        """Open a command and start its timer."""
        task = self._tasks[command.id] = CommandTask(command, state)
        self.budget.add(command)
        self._start_timer(task)
        return task

    def remove(self, task: CommandTask) -> None:
        """Close a command and stop its timer."""
        if self._tasks.pop(task.command.id, None) is not None:
            self.budget.remove(task.command)
            self._timers.pop(task.command.id).cancel()

    def clear(self) -> None:
        """Close all commands."""
        for task in list(self._tasks.values()):
            self.remove(task)

    def _start_timer(self, task: CommandTask) -> None:
        left_s = max(0.0, task.command.deadline.left_ms(self._now()) / 1000)
        self._timers[task.command.id] = self._loop.call_later(left_s, self._on_timer, task)

    def _on_timer(self, task: CommandTask) -> None:
        # The loop's clock stops while the machine sleeps; the deadline is on the clock since boot, which does not.
        if task.command.deadline.left_ms(self._now()) > 0:
            self._start_timer(task)
        else:
            self._on_deadline(task)
