"""Executes the open commands, one per device at a time, and ends each with one terminal state."""

import asyncio
from dataclasses import dataclass
from functools import partial

from fogline.commands.command import Command, CommandState, Reply
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.adapters.port import Executor
from fogline_edge.downlink import journal
from fogline_edge.downlink.command_task import CommandTask, Effect, Finish, NextStep
from fogline_edge.downlink.device_queues import DeviceQueues, queue_of
from fogline_edge.downlink.open_commands import OpenCommands
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer.file_room import RESERVE

BUDGET = RESERVE / 2
"""Share of the outbox that open commands may take: half of its reserve, so that their answers find room there."""


@dataclass(slots=True)
class DownlinkCounters:
    """Counters since the start. `fogline.process.monitoring.metrics` has their meanings."""

    received: int = 0
    known: int = 0
    refused: int = 0
    executed: int = 0
    succeeded: int = 0
    failed: int = 0
    rejected: int = 0
    expired: int = 0
    cancelled: int = 0
    in_doubt: int = 0
    unknown: int = 0


class CommandRunner:
    """Owns the open commands and the queues of the devices. Used on the loop.

    The journal commits `SENDING` before the device gets a command, so that a restart never repeats one unknowingly.
    """

    def __init__(self, outbox: Outbox, counters: DownlinkCounters) -> None:
        self._outbox = outbox
        self._counters = counters
        self._now = outbox.clock.beacon
        self._loop = asyncio.get_running_loop()
        self.commands = OpenCommands(int(outbox.max_bytes * BUDGET), self._now, self._on_deadline)
        self.queues = DeviceQueues()
        self._retries: dict[str, asyncio.TimerHandle] = {}
        self._executors: dict[str, Executor] = {}  # the adapter that got each open command

    def close(self) -> None:
        """Stop all timers. The journal keeps the open commands for the next start."""
        self.commands.clear()
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        self.queues = DeviceQueues()

    def take(self, commands: list[Command]) -> None:
        """Take commands of rules, which the journal has. They need no signature: the installer wrote the rules."""
        crash_point(CrashPoint.AFTER_RULE_COMMIT_BEFORE_QUEUE)
        for command in commands:
            if self.commands.get(command.id) is None:
                self.perform(self.commands.add(command, CommandState.QUEUED), NextStep.QUEUE)

    def start_next(self, device: str) -> None:
        """Begin with the first waiting command, if the device is reachable and no other command is under way."""
        task = self.queues.next(device, self._loop.time())
        if task is not None:
            task.state = CommandState.SENDING
            act = partial(journal.set_state, command_id=task.command.id, state=CommandState.SENDING)
            self._outbox.port.act(act, partial(self._on_sending, task), urgent=True)

    def _on_sending(self, task: CommandTask, is_sending: bool) -> None:  # noqa: FBT001 - called by position
        if is_sending:  # else the journal has ended it meanwhile
            self.execute(task)

    def execute(self, task: CommandTask) -> None:
        """Hand a command to the device's adapter, after the journal has committed `SENDING`."""
        if self.commands.get(task.command.id) is None or not self.queues.is_current(task):
            return
        executor = self.queues.executor(queue_of(task.command))
        self.perform(task, task.begin(self._now(), reachable=executor is not None))

    def perform(self, task: CommandTask, effect: Effect) -> None:
        """Do what the command's life needs next (`fogline_edge.downlink.command_task`)."""
        match effect:
            case Finish(state, reply):
                self._finish(task, state, reply)
            case NextStep.QUEUE:
                self.queues.append(task)
                self.start_next(queue_of(task.command))
            case NextStep.EXECUTE:
                self._execute(task)
            case NextStep.PUT_BACK:
                act = partial(journal.set_state, command_id=task.command.id, state=CommandState.QUEUED)
                self._outbox.port.act(act, lambda _: None, urgent=True)
                self._retry_later(task)
            case NextStep.REPEAT:
                self._retry_later(task)
            case NextStep.AWAIT:
                self.leave(task)

    def _execute(self, task: CommandTask) -> None:
        executor = self.queues.executor(queue_of(task.command))
        assert executor is not None
        self._counters.executed += 1
        crash_point(CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE)
        self._executors[task.command.id] = executor
        executor.execute(task.command)

    def _retry_later(self, task: CommandTask) -> None:
        """Put a command at the front of its device's queue, for the end of a pause or the device's next `reachable`."""
        device = queue_of(task.command)
        pause_s = self.queues.put_back(task, self._loop.time())
        if (former := self._retries.pop(device, None)) is not None:
            former.cancel()
        self._retries[device] = self._loop.call_later(pause_s, self._retry, device)

    def _retry(self, device: str) -> None:
        del self._retries[device]
        self.start_next(device)

    def _finish(self, task: CommandTask, state: CommandState, reply: Reply) -> None:
        self.end(task, state)
        finish = partial(journal.finish, command=task.command, state=state, reply=reply)
        self._outbox.port.act(finish, lambda _: None, urgent=True, size=len(reply.data))

    def end(self, task: CommandTask, state: CommandState) -> None:
        """Count and close a command that the journal has ended, or is about to end."""
        name = state.value.lower()
        setattr(self._counters, name, getattr(self._counters, name) + 1)
        self.discard(task)

    def discard(self, task: CommandTask) -> None:
        """Close a command."""
        self.commands.remove(task)
        self._executors.pop(task.command.id, None)
        self.leave(task)

    def leave(self, task: CommandTask) -> None:
        """Let the next command of the device begin, while this one at most waits for its answer."""
        if self.queues.remove(task):
            self._loop.call_soon(self.start_next, queue_of(task.command))

    def _on_deadline(self, task: CommandTask) -> None:
        # The adapter that has it may not be the one that reaches the device now, and another command may be under way.
        executor = self._executors.get(task.command.id) or self.queues.executor(queue_of(task.command))
        if executor is not None and (task.begun or task.doubts):
            executor.abandon(task.command)  # the adapter may report the command as not sent, or as over, within this call
        if self.commands.get(task.command.id) is not None:
            # With `SENDING` on its way to the journal the adapter does not have it yet, and will not get it.
            self.perform(task, task.expire())
