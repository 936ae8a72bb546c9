"""Commands on the event loop: which goes next to which device, until when, and what is told to the bridge.

A command is written down before it is accepted, and its being tried is committed before the device is touched. One
command a device is under way, in the order in which they came.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fogline.amqp.outcome import ACCEPTED, NOT_ALLOWED, RELEASED, RESOURCE_LIMIT, Outcome, rejected
from fogline.command import CONFLICT, EXPIRED, Answer, Command, JournalQuery, State, Status
from fogline.crash import CrashPoint, crash_point
from fogline.dead import dead_letter
from fogline.errors import Poison, SlowDown
from fogline.event import Receipt
from fogline.signature import Keys
from fogline_edge.adapters.port import Executor
from fogline_edge.downlink import journal
from fogline_edge.downlink.budget import CommandBudget
from fogline_edge.downlink.journal import Stored
from fogline_edge.downlink.lines import Lines, Task
from fogline_edge.downlink.recall import Recalled, recall, unsure
from fogline_edge.outbox.forgetting import REMEMBER_COMMANDS_S
from fogline_edge.outbox.ingest import Group, Ingest
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.writer import RESERVE

BUDGET = RESERVE / 2
"""The share of the outbox that open commands may take: half of its reserve, so that their answers find room there."""
MAX_DOUBTS = 5
"""After so many attempts without a known outcome an idempotent command is not sent again: others of its device wait."""

_log = logging.getLogger("fogline.downlink")


@dataclass(slots=True)
class DownlinkCounters:
    """Since the start. `received`: commands that came; `executed`: handed to an adapter; `unknown`: answers to none."""

    received: int = 0
    known: int = 0
    refused: int = 0
    executed: int = 0
    succeeded: int = 0
    failed: int = 0
    rejected: int = 0
    expired: int = 0
    in_doubt: int = 0
    unknown: int = 0


class Downlink:
    """A `Commands` for adapters; the uplink hands over what the bridge sends. Everything is called on the loop.

    `keys`: who may sign commands; without any key, nobody has to.
    """

    def __init__(self, outbox: Outbox, keys: Keys) -> None:
        self.counters = DownlinkCounters()
        self._outbox = outbox
        self._now = outbox.clock.beacon
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, Task] = {}
        self._lines = Lines()
        self._budget = CommandBudget(int(outbox.max_bytes * BUDGET))
        self._retries: dict[str, asyncio.TimerHandle] = {}

    async def start(self) -> None:
        """Take up what the journal holds of former runs."""
        for entry in await self._outbox.read_journal(journal.open_entries):
            task = self._add(Task(entry.command, entry.state, doubts=int(entry.state is State.SENDING)))
            match recall(entry.command, entry.state, self._now()):
                case Recalled.EXPIRE:
                    self._finish(task, State.EXPIRED, journal.nothing(Status.EXPIRED))
                case Recalled.DOUBT:
                    self._finish(task, State.IN_DOUBT, journal.nothing(Status.NO_ANSWER))
                case Recalled.QUEUE:
                    self._queue(task)
                case Recalled.AWAIT:
                    _log.info("command %s was under way when the gateway ended: its answer may still come", entry.command.id)

    def close(self) -> None:
        """Stop all timers. What is not over goes on at the next start."""
        for task in self._tasks.values():
            if task.timer is not None:
                task.timer.cancel()
        for retry in self._retries.values():
            retry.cancel()
        self._tasks.clear()
        self._retries.clear()
        self._lines = Lines()

    # --- from the bridge

    def received(self, command: Command | JournalQuery, settle: Callable[[Outcome], None]) -> None:
        """A command from the bridge, or a question about one; `settle` is called once: accepted means in the journal."""
        if isinstance(command, JournalQuery):
            self._look_up(command, settle)
            return
        self.counters.received += 1
        refusal = self._refusal(command)
        at_once = self._lines.idle(command.device, self._loop.time())
        first = None if refusal else State.SENDING if at_once else State.QUEUED
        task = Task(command, first) if first is not None and command.id not in self._tasks else None
        if task is not None:
            self._add(task)
            if at_once:
                self._lines.begin(task)
        store, stored = (
            partial(journal.store, command=command, first=first),
            partial(self._stored, command, task, refusal, settle),
        )
        self._outbox.act(store, stored, urgent=True, size=len(command.data))

    def _look_up(self, query: JournalQuery, settle: Callable[[Outcome], None]) -> None:
        """Answer from the journal, after everything that was received before."""
        if (refusal := self._misdirected(query)) is not None:
            settle(refusal)
            return

        def found(stored: Stored) -> None:
            conflict = rejected(CONFLICT, f"command {query.id} is known here with another body")
            settle({Stored.KNOWN: ACCEPTED, Stored.CONFLICT: conflict}.get(stored, RELEASED))

        self._outbox.act(partial(journal.find, command_id=query.id, content=query.digest), found, urgent=True)

    def _misdirected(self, message: Command | JournalQuery) -> Outcome | None:
        if (message.tenant, message.gateway) == (self._outbox.tenant, self._outbox.gateway):
            return None
        return rejected(NOT_ALLOWED, f"this is gateway {self._outbox.gateway} of {self._outbox.tenant}")

    def _refusal(self, command: Command) -> Outcome | None:
        if (misdirected := self._misdirected(command)) is not None:
            return misdirected
        if (why := self._keys.doubt(command)) is not None:
            return rejected(NOT_ALLOWED, why)
        if (outcome := _refused_for_time(command.deadline.left_ms(self._now()))) is not None:
            return outcome
        if not command.durable and self._lines.executor(command.device) is None:
            return RELEASED
        if (why := self._budget.refusal(command)) is not None:
            return rejected(RESOURCE_LIMIT, why)
        return None

    def _stored(
        self, command: Command, task: Task | None, refusal: Outcome | None, settle: Callable[[Outcome], None], stored: Stored
    ) -> None:
        if stored is Stored.NEW and task is not None:
            settle(ACCEPTED)
            self._go_on(task)
            return
        if task is not None:
            self._remove(task)
        if stored is Stored.KNOWN:
            self.counters.known += 1
            settle(ACCEPTED)
        elif stored is Stored.CONFLICT:
            settle(rejected(CONFLICT, f"command {command.id} is known here with another body"))
        else:
            self.counters.refused += 1
            settle(refusal or RELEASED)

    def _go_on(self, task: Task) -> None:
        if task.state is State.SENDING:
            self._execute(task)
        else:
            self._queue(task)

    # --- which one goes next

    def _add(self, task: Task) -> Task:
        self._tasks[task.command.id] = task
        self._budget.add(task.command)
        self._arm(task)
        return task

    def _arm(self, task: Task) -> None:
        left_s = max(0.0, task.command.deadline.left_ms(self._now()) / 1000)
        task.timer = self._loop.call_later(left_s, self._on_deadline, task)

    def _on_deadline(self, task: Task) -> None:
        """The deadline, on the clock that also counts while the machine sleeps."""
        if task.command.deadline.left_ms(self._now()) > 0:
            self._arm(task)
            return
        executor = self._lines.executor(task.command.device)
        if executor is not None and self._lines.is_current(task):
            executor.abandon(task.command)  # which may tell at once that it was not sent, or even that it is over
        if task.command.id in self._tasks:
            self._expire(task, unseen=task.state is State.QUEUED)

    def _expire(self, task: Task, *, unseen: bool) -> None:
        """End a command whose deadline has passed. `unseen`: it is certain that the device never got it."""
        if unseen:
            self._finish(task, State.EXPIRED, journal.nothing(Status.EXPIRED))
        else:
            self._finish(task, State.IN_DOUBT, journal.nothing(Status.NO_ANSWER))

    def _queue(self, task: Task) -> None:
        self._lines.queue(task)
        self._next(task.command.device)

    def _next(self, device: str) -> None:
        """Begin with the command that waits longest, if the device is there and has none: first commit, then touch."""
        task = self._lines.next(device, self._loop.time())
        if task is not None:
            task.state = State.SENDING
            act = partial(journal.become, command_id=task.command.id, state=State.SENDING)
            self._outbox.act(act, lambda _: self._execute(task), urgent=True)

    def _execute(self, task: Task) -> None:
        """The journal says that it is being tried: try it, unless it is too late or the device has just gone."""
        if task.command.id not in self._tasks or not self._lines.is_current(task):
            return
        executor = self._lines.executor(task.command.device)
        if task.command.deadline.left_ms(self._now()) <= 0:
            self._expire(task, unseen=not task.doubts)
        elif executor is None:
            self.not_sent(task.command.id)
        else:
            self.counters.executed += 1
            crash_point(CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE)
            executor.execute(task.command)

    # --- from the adapters (the port's `Commands`)

    def reachable(self, device: str, by: Executor) -> None:
        """See `fogline_edge.adapters.port.Commands.reachable`."""
        self._lines.reach(device, by)
        self._loop.call_soon(self._next, device)

    def unreachable(self, device: str, by: Executor) -> None:
        """See `fogline_edge.adapters.port.Commands.unreachable`."""
        self._lines.lose(device, by)

    def taken(self, command_id: str) -> None:
        """See `fogline_edge.adapters.port.Commands.taken`."""
        task = self._tasks.get(command_id)
        if task is not None and task.state is State.SENDING and not task.command.reply:
            self._finish(task, State.SUCCEEDED, journal.nothing(Status.TAKEN))

    def not_sent(self, command_id: str) -> None:
        """See `fogline_edge.adapters.port.Commands.not_sent`."""
        task = self._tasks.get(command_id)
        if task is not None and task.state is State.SENDING and not self._lines.waits(task):
            self._queue_again(task)

    def lost(self, command_id: str) -> None:
        """See `fogline_edge.adapters.port.Commands.lost`."""
        task = self._tasks.get(command_id)
        if task is None or task.state is not State.SENDING or self._lines.waits(task):
            return
        task.doubts += 1
        match unsure(task.command):
            case Recalled.QUEUE if task.doubts < MAX_DOUBTS:
                self._queue_again(task)
            case Recalled.QUEUE | Recalled.AWAIT:
                self._leave(task)
            case _:
                self._finish(task, State.IN_DOUBT, journal.nothing(Status.NO_ANSWER))

    def refused(self, command_id: str, why: str) -> None:
        """See `fogline_edge.adapters.port.Commands.refused`."""
        task = self._tasks.get(command_id)
        if task is not None and task.state is State.SENDING:
            answer = Answer(int(Status.UNDELIVERABLE), why.encode(), "text/plain")
            self._finish(task, State.REJECTED, answer)

    def answer(self, device: str, command_id: str, answer: Answer, done: Callable[[Receipt], None]) -> None:
        """See `fogline_edge.adapters.port.Commands.answer`."""
        if self._outbox.crowded:
            raise SlowDown("too much waits for the disk", retry_after_s=1)

        def run(ingest: Ingest, group: Group) -> tuple[Receipt, State | None]:
            return journal.answered(ingest, group, device, command_id, answer)

        def committed(result: tuple[Receipt, State | None]) -> None:
            receipt, state = result
            if receipt is Receipt.DEAD:
                self._bury(device, command_id, answer, done)
                return
            crash_point(CrashPoint.AFTER_ANSWER_COMMIT)
            task = self._tasks.get(command_id)
            if state is not None and task is not None:
                self._count(state)
                self._remove(task)
            done(receipt)

        self._outbox.act(run, committed, urgent=True, size=len(answer.data))

    def _bury(self, device: str, command_id: str, answer: Answer, done: Callable[[Receipt], None]) -> None:
        """Keep an answer that belongs to no command as a dead letter, as soon as there is room."""
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
        self._outbox.put_when_room(letter, lambda _: done(Receipt.DEAD))

    # --- ends

    def _queue_again(self, task: Task) -> None:
        """Put a command at the front of its device's queue: it is tried again after a pause, or once it is reachable anew."""
        device = task.command.device
        pause_s = self._lines.put_back(task, self._loop.time())
        if not task.doubts:
            task.state = State.QUEUED
            act = partial(journal.become, command_id=task.command.id, state=State.QUEUED)
            self._outbox.act(act, lambda _: None, urgent=True)
        if (former := self._retries.pop(device, None)) is not None:
            former.cancel()
        self._retries[device] = self._loop.call_later(pause_s, self._retry, device)

    def _retry(self, device: str) -> None:
        del self._retries[device]
        self._next(device)

    def _finish(self, task: Task, state: State, answer: Answer) -> None:
        """Its end, in the journal and on the reply lane."""
        self._count(state)
        self._remove(task)
        finish = partial(journal.finish, command=task.command, state=state, answer=answer)
        self._outbox.act(finish, lambda _: None, urgent=True, size=len(answer.data))

    def _count(self, state: State) -> None:
        name = state.value.lower()
        setattr(self.counters, name, getattr(self.counters, name) + 1)

    def _remove(self, task: Task) -> None:
        if self._tasks.pop(task.command.id, None) is not None:
            self._budget.remove(task.command)
        if task.timer is not None:
            task.timer.cancel()
        self._leave(task)

    def _leave(self, task: Task) -> None:
        """It is not under way any more: the next one of the device may begin."""
        if self._lines.leave(task):
            self._loop.call_soon(self._next, task.command.device)


def _refused_for_time(left_ms: int) -> Outcome | None:
    """Why a command with so much time left is not taken."""
    if left_ms <= 0:
        return rejected(EXPIRED, "its deadline is past, or of another boot")
    if left_ms > REMEMBER_COMMANDS_S * 1000:  # a copy could come when the journal does not remember it any more
        return rejected(NOT_ALLOWED, f"its deadline is more than {REMEMBER_COMMANDS_S // 86_400} days away")
    return None
