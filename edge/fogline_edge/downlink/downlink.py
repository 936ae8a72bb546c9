"""Takes commands from the bridge into the journal before it accepts them, and the adapters' reports to the runner."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, RELEASED, RESOURCE_LIMIT, Outcome, rejected
from fogline.commands.cancel import CancelRequest
from fogline.commands.command import CONFLICT, EXPIRED, REMEMBER_COMMANDS_S, Command, CommandState, JournalQuery, Reply, Status
from fogline.commands.signature import TrustedKeys
from fogline.dead_letter import dead_letter
from fogline.errors import Poison, SlowDown
from fogline.events.event import Receipt
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.adapters.port import Executor
from fogline_edge.downlink import journal
from fogline_edge.downlink.cancellations import Cancellations
from fogline_edge.downlink.command_task import CommandTask, Finish, NextStep
from fogline_edge.downlink.device_queues import queue_of
from fogline_edge.downlink.journal import JournalResult
from fogline_edge.downlink.runner import CommandRunner, DownlinkCounters
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.group import Group
from fogline_edge.outbox.writer.ingest import Ingest

_log = logging.getLogger("fogline.downlink")


class Downlink:
    """The `CommandPort` of the adapters, and the receiver of the bridge's commands. Used on the loop.

    `keys`: the keys that may sign commands; without any, unsigned commands are accepted.
    """

    def __init__(self, outbox: Outbox, keys: TrustedKeys) -> None:
        self.counters = DownlinkCounters()
        self._outbox = outbox
        self._now = outbox.clock.beacon
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._runner = CommandRunner(outbox, self.counters)
        self._cancellations = Cancellations(outbox, self._runner, keys)

    async def start(self) -> None:
        """Resume the open commands of the journal."""
        self._outbox.on_commands = self._runner.take
        for command, state in await self._outbox.read_journal(journal.open_entries):
            task = self._runner.commands.add(command, state)
            effect = task.resume(self._now())
            if effect is NextStep.AWAIT:
                _log.info("command %s was under way when the gateway stopped; waiting for its answer", command.id)
            self._runner.perform(task, effect)

    def close(self) -> None:
        """Stop all timers. The journal keeps the open commands for the next start."""
        self._outbox.on_commands = lambda _: None
        self._runner.close()

    # --- from the bridge

    def received(self, command: Command | JournalQuery | CancelRequest, settle: Callable[[Outcome], None]) -> None:
        """Take a command, a query about one, or a request to cancel one.

        Calls `settle` once; `accepted` means that the journal has the command.
        """
        if isinstance(command, JournalQuery):
            self._look_up(command, settle)
            return
        if isinstance(command, CancelRequest):
            if (refusal := _refuse_misdirected(command, self._outbox)) is not None:
                settle(refusal)
            else:
                self._cancellations.received(command, settle)
            return
        self.counters.received += 1
        refusal = self._refusal(command)
        at_once = self._runner.queues.idle(queue_of(command), self._loop.time())
        first = None if refusal else CommandState.SENDING if at_once else CommandState.QUEUED
        task: CommandTask | None = None
        if first is not None and self._runner.commands.get(command.id) is None:
            task = self._runner.commands.add(command, first)
            task.stored = False
            if at_once:
                self._runner.queues.begin(task)
            else:
                self._runner.queues.append(task)
        store = partial(journal.store, command=command, first=first)
        stored = partial(self._stored, command, task, refusal, settle)
        self._outbox.port.act(store, stored, urgent=True, size=len(command.data))

    def _look_up(self, query: JournalQuery, settle: Callable[[Outcome], None]) -> None:
        """Answer from the journal, after every command that was received before."""
        if (refusal := _refuse_misdirected(query, self._outbox)) is not None:
            settle(refusal)
            return

        def found(stored: JournalResult) -> None:
            conflict = rejected(CONFLICT, f"command {query.id} is known here with another body")
            settle({JournalResult.KNOWN: ACCEPTED, JournalResult.CONFLICT: conflict}.get(stored, RELEASED))

        self._outbox.port.act(partial(journal.find, command_id=query.id, content=query.digest), found, urgent=True)

    def _refusal(self, command: Command) -> Outcome | None:
        if (refusal := _refuse_misdirected(command, self._outbox)) is not None:
            return refusal
        if (why := self._keys.doubt(command)) is not None:
            return rejected(NOT_ALLOWED, why)
        if (refusal := _refuse_deadline(command.deadline.left_ms(self._now()))) is not None:
            return refusal
        if not command.durable and self._runner.queues.executor(queue_of(command)) is None:
            return RELEASED
        if (why := self._runner.commands.budget.refusal(command)) is not None:
            return rejected(RESOURCE_LIMIT, why)
        return None

    def _stored(
        self,
        command: Command,
        task: CommandTask | None,
        refusal: Outcome | None,
        settle: Callable[[Outcome], None],
        stored: JournalResult,
    ) -> None:
        if stored is JournalResult.NEW and task is not None:
            settle(ACCEPTED)
            task.stored = True
            if self._runner.queues.is_current(task):
                self._runner.execute(task)
            else:
                self._runner.start_next(queue_of(command))
            return
        if task is not None:
            self._runner.discard(task)
        if stored is JournalResult.KNOWN:
            self.counters.known += 1
            settle(ACCEPTED)
        elif stored is JournalResult.CONFLICT:
            settle(rejected(CONFLICT, f"command {command.id} is known here with another body"))
        else:
            self.counters.refused += 1
            settle(refusal or RELEASED)

    # --- from the adapters

    def reachable(self, device: str, by: Executor) -> None:
        """See `CommandPort.reachable`."""
        self._runner.queues.set_reachable(device, by)
        self._loop.call_soon(self._runner.start_next, device)

    def unreachable(self, device: str, by: Executor) -> None:
        """See `CommandPort.unreachable`."""
        self._runner.queues.set_unreachable(device, by)

    def taken(self, command_id: str) -> None:
        """See `CommandPort.taken`."""
        task = self._runner.commands.get_sending(command_id)
        if task is not None and not task.command.reply:
            self._runner.perform(task, Finish(CommandState.SUCCEEDED, Reply(Status.TAKEN)))

    def not_sent(self, command_id: str) -> None:
        """See `CommandPort.not_sent`."""
        task = self._runner.commands.get_sending(command_id)
        if task is not None and not self._runner.queues.waits(task):
            self._runner.perform(task, task.put_back())

    def lost(self, command_id: str) -> None:
        """See `CommandPort.lost`."""
        task = self._runner.commands.get_sending(command_id)
        if task is not None and not self._runner.queues.waits(task):
            self._runner.perform(task, task.lose())

    def refused(self, command_id: str, why: str) -> None:
        """See `CommandPort.refused`."""
        task = self._runner.commands.get_sending(command_id)
        if task is not None:
            reply = Reply(Status.UNDELIVERABLE, why.encode(), "text/plain")
            self._runner.perform(task, Finish(CommandState.REJECTED, reply))

    def answer(self, device: str, command_id: str, answer: Reply, done: Callable[[Receipt], None]) -> None:
        """See `CommandPort.answer`."""
        if self._outbox.port.crowded:
            raise SlowDown("too many events wait to be written to the disk", retry_after_s=1)

        def run(ingest: Ingest, group: Group) -> tuple[Receipt, CommandState | None]:
            return journal.store_answer(ingest, group, device, command_id, answer)

        def committed(result: tuple[Receipt, CommandState | None]) -> None:
            receipt, state = result
            if receipt is Receipt.DEAD:
                self._store_dead_letter(device, command_id, answer, done)
                return
            crash_point(CrashPoint.AFTER_ANSWER_COMMIT)
            task = self._runner.commands.get(command_id)
            if state is not None and task is not None:
                self._runner.end(task, state)
            done(receipt)

        self._outbox.port.act(run, committed, urgent=True, size=len(answer.data))

    def _store_dead_letter(self, device: str, command_id: str, answer: Reply, done: Callable[[Receipt], None]) -> None:
        self.counters.unknown += 1
        error = Poison("unknown-command", f"no command {ascii(command_id)[:80]} of {device} awaits an answer")
        letter = dead_letter(
            error,
            gateway=self._outbox.gateway,
            adapter="fogline",
            sender=device,
            channel=f"answer/{command_id}/{answer.status}",
            data=answer.data,
            retransmission=None,
        )
        self._outbox.port.put_when_room(letter, lambda _: done(Receipt.DEAD))


def _refuse_misdirected(message: Command | JournalQuery | CancelRequest, outbox: Outbox) -> Outcome | None:
    if (message.tenant, message.gateway) == (outbox.tenant, outbox.gateway):
        return None
    return rejected(NOT_ALLOWED, f"this is gateway {outbox.gateway} of {outbox.tenant}")


def _refuse_deadline(left_ms: int) -> Outcome | None:
    if left_ms <= 0:
        return rejected(EXPIRED, "its time to live was over when it reached the gateway")
    if left_ms > REMEMBER_COMMANDS_S * 1000:  # a copy could arrive after the journal has forgotten the command
        return rejected(NOT_ALLOWED, f"its deadline is more than {REMEMBER_COMMANDS_S // 86_400} days away")
    return None
