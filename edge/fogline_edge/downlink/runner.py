"""Executes the open commands, one per device at a time, and ends each with one terminal state."""

import asyncio
from dataclasses import dataclass
from functools import partial

from fogline.command import CommandState, Reply, Status
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.downlink import journal
from fogline_edge.downlink.device_queues import CommandTask, DeviceQueues
from fogline_edge.downlink.open_commands import OpenCommands
from fogline_edge.outbox.file_room import RESERVE
from fogline_edge.outbox.outbox import Outbox

BUDGET = RESERVE / 2
"""Share of the outbox that open commands may take: half of its reserve, so that their answers find room there."""

LEAST_LEFT_MS = 1000
"""Time that a command needs before its deadline to begin: with less, its device could not answer in time on a busy line."""


@dataclass(slots=True)
class DownlinkCounters:
    """Counters since the start. `fogline.process.metrics` has their meanings."""

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

    def close(self) -> None:
        """Stop all timers. The journal keeps the open commands for the next start."""
        self.commands.clear()
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        self.queues = DeviceQueues()

    def queue(self, task: CommandTask) -> None:
        """Execute a command after the others of its device."""
        self.queues.append(task)
        self.start_next(task.command.device)

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
        executor = self.queues.executor(task.command.device)
        if task.command.deadline.left_ms(self._now()) <= LEAST_LEFT_MS:
            self._expire(task, unseen=not task.doubts)
        elif task.cancelled is not None:
            self.end_cancelled(task)
        elif executor is None:
            self.retry_later(task)
        else:
            self._counters.executed += 1
            crash_point(CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE)
            task.begun, task.by = True, executor
            executor.execute(task.command)

    def retry_later(self, task: CommandTask) -> None:
        """Put a command at the front of its device's queue, for the end of a pause or the device's next `reachable`."""
        if task.cancelled is not None:
            self.end_cancelled(task)
            return
        device = task.command.device
        pause_s = self.queues.put_back(task, self._loop.time())
        if not task.doubts:
            task.state, task.begun = CommandState.QUEUED, False
            act = partial(journal.set_state, command_id=task.command.id, state=CommandState.QUEUED)
            self._outbox.port.act(act, lambda _: None, urgent=True)
        if (former := self._retries.pop(device, None)) is not None:
            former.cancel()
        self._retries[device] = self._loop.call_later(pause_s, self._retry, device)

    def _retry(self, device: str) -> None:
        del self._retries[device]
        self.start_next(device)

    def finish(self, task: CommandTask, state: CommandState, reply: Reply) -> None:
        """End a command in the journal, and report its end on the reply lane."""
        self.end(task, state)
        finish = partial(journal.finish, command=task.command, state=state, reply=reply)
        self._outbox.port.act(finish, lambda _: None, urgent=True, size=len(reply.data))

    def end_cancelled(self, task: CommandTask) -> None:
        """End a command that was to be cancelled while it was under way, and that waits again."""
        if task.doubts:
            self.finish(task, CommandState.IN_DOUBT, Reply(Status.NO_ANSWER))
        else:
            self.finish(task, CommandState.CANCELLED, journal.cancelled(task.cancelled or ""))

    def end(self, task: CommandTask, state: CommandState) -> None:
        """Count and close a command that the journal has ended, or is about to end."""
        name = state.value.lower()
        setattr(self._counters, name, getattr(self._counters, name) + 1)
        self.discard(task)

    def discard(self, task: CommandTask) -> None:
        """Close a command."""
        self.commands.remove(task)
        self.leave(task)

    def leave(self, task: CommandTask) -> None:
        """Let the next command of the device begin, while this one at most waits for its answer."""
        if self.queues.remove(task):
            self._loop.call_soon(self.start_next, task.command.device)

    def _on_deadline(self, task: CommandTask) -> None:
        # The adapter that has it may not be the one that reaches the device now, and another command may be under way.
        executor = task.by or self.queues.executor(task.command.device)
        if executor is not None and (task.begun or task.doubts):
            executor.abandon(task.command)  # the adapter may report the command as not sent, or as over, within this call
        if self.commands.get(task.command.id) is not None:
            # With `SENDING` on its way to the journal the adapter does not have it yet, and will not get it.
            self._expire(task, unseen=not task.begun and not task.doubts)

    def _expire(self, task: CommandTask, *, unseen: bool) -> None:
        """End a command after its deadline. `unseen`: the device certainly never got it."""
        state, status = (CommandState.EXPIRED, Status.EXPIRED) if unseen else (CommandState.IN_DOUBT, Status.NO_ANSWER)
        self.finish(task, state, Reply(status))
