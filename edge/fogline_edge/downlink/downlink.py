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
from fogline_edge.downlink.journal import Stored
from fogline_edge.downlink.lines import Lines, Task
from fogline_edge.downlink.recall import Recalled, recall, unsure
from fogline_edge.outbox.ingest import Group, Ingest
from fogline_edge.outbox.outbox import Outbox

MAX_QUEUED = 10_000

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

    async def start(self) -> None:
        """Take up what the journal holds of former runs."""
        for entry in await self._outbox.read_journal(journal.open_entries):
            task = self._add(Task(entry.command, entry.state))
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
        self._tasks.clear()

    # --- from the bridge

    def received(self, command: Command | JournalQuery, settle: Callable[[Outcome], None]) -> None:
        """A command from the bridge, or a question about one; `settle` is called once: accepted means in the journal."""
        if isinstance(command, JournalQuery):
            self._look_up(command, settle)
            return
        self.counters.received += 1
        refusal = self._refusal(command)
        at_once = self._lines.idle(command.device)
        first = None if refusal else State.SENDING if at_once else State.QUEUED
        task = Task(command, first) if first is not None and command.id not in self._tasks else None
        if task is not None:
            self._add(task)
            if at_once:
                self._lines.begin(task)
        store = partial(journal.store, command=command, first=first)
        self._outbox.act(store, partial(self._stored, command, task, refusal, settle), urgent=True)

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
        if command.deadline.left_ms(self._now()) <= 0:
            return rejected(EXPIRED, "its deadline is past, or of another boot")
        if not command.durable and self._lines.executor(command.device) is None:
            return RELEASED
        if len(self._tasks) >= MAX_QUEUED or self._lines.full(command.device):
            return rejected(RESOURCE_LIMIT, f"too many commands wait already for {command.device}")
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
        self._arm(task)
        return task

    def _arm(self, task: Task) -> None:
        left_s = max(0.0, task.command.deadline.left_ms(self._now()) / 1000)
        task.timer = self._loop.call_later(left_s, self._on_deadline, task)

    def _on_deadline(self, task: Task) -> None:
        """The deadline, on the clock that also counts while the machine sleeps."""
        if task.command.deadline.left_ms(self._now()) > 0:
            self._arm(task)
        elif task.state is State.QUEUED:
            self._finish(task, State.EXPIRED, journal.nothing(Status.EXPIRED))
        elif task.state is State.SENDING:
            executor = self._lines.executor(task.command.device)
            if executor is not None and self._lines.is_current(task):
                executor.abandon(task.command)
            self._finish(task, State.IN_DOUBT, journal.nothing(Status.NO_ANSWER))

    def _queue(self, task: Task) -> None:
        self._lines.queue(task)
        self._next(task.command.device)

    def _next(self, device: str) -> None:
        """Begin with the command that waits longest, if the device is there and has none: first commit, then touch."""
        task = self._lines.next(device)
        if task is not None:
            task.state = State.SENDING
            act = partial(journal.become, command_id=task.command.id, state=State.SENDING)
            self._outbox.act(act, lambda _: self._execute(task), urgent=True)

    def _execute(self, task: Task) -> None:
        """The journal says that it is being tried: try it, unless it is too late or the device has just gone."""
        if task.command.id not in self._tasks or task.state is not State.SENDING:
            return
        executor = self._lines.executor(task.command.device)
        if task.command.deadline.left_ms(self._now()) <= 0:
            self._finish(task, State.EXPIRED, journal.nothing(Status.EXPIRED))
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
        if task is not None and task.state is State.SENDING:
            self._queue_again(task)

    def lost(self, command_id: str) -> None:
        """See `fogline_edge.adapters.port.Commands.lost`."""
        task = self._tasks.get(command_id)
        if task is None or task.state is not State.SENDING:
            return
        match unsure(task.command):
            case Recalled.QUEUE:
                self._queue_again(task)
            case Recalled.AWAIT:
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

        self._outbox.act(run, committed, urgent=True)

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

        def put() -> None:
            try:
                self._outbox.put(letter, lambda _: done(Receipt.DEAD))
            except SlowDown:
                self._outbox.when_room(put)

        put()

    # --- ends

    def _queue_again(self, task: Task) -> None:
        """Back to the front of its device's line, until the device is reachable anew."""
        task.state = State.QUEUED
        self._lines.leave(task)
        self._lines.put_back(task)
        act = partial(journal.become, command_id=task.command.id, state=State.QUEUED)
        self._outbox.act(act, lambda _: None, urgent=True)

    def _finish(self, task: Task, state: State, answer: Answer) -> None:
        """Its end, in the journal and on the reply lane."""
        self._count(state)
        self._remove(task)
        finish = partial(journal.finish, command=task.command, state=state, answer=answer)
        self._outbox.act(finish, lambda _: None, urgent=True)

    def _count(self, state: State) -> None:
        name = state.value.lower()
        setattr(self.counters, name, getattr(self.counters, name) + 1)

    def _remove(self, task: Task) -> None:
        self._tasks.pop(task.command.id, None)
        if task.timer is not None:
            task.timer.cancel()
        self._leave(task)

    def _leave(self, task: Task) -> None:
        """It is not under way any more: the next one of the device may begin."""
        if self._lines.leave(task):
            self._loop.call_soon(self._next, task.command.device)
