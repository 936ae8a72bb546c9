"""All commands, their timers and waiting operators, on the event loop: a copy of the records that the shards have committed.

`fogline_cloud.commands.command_life` decides about each command. The table reports events to it and performs the effects.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Concatenate, ParamSpec

import msgspec

from fogline.amqp.outcome import ACCEPTED, Outcome
from fogline.amqp.sending import Sender
from fogline.process.crash_points import CrashPoint, crash_point
from fogline.process.kernel_clock import wall_clock_ms
from fogline.process.log_throttle import LogThrottle
from fogline.process.loop_calls import call_soon
from fogline_cloud.bridge.commands.command_sender import CommandSender
from fogline_cloud.bridge.commands.replies import ReplySender
from fogline_cloud.bridge.commands.verdict_waiters import VerdictWaiters
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands import command_life as life
from fogline_cloud.commands.command_life import CommandLife, Effect, Effects, Now
from fogline_cloud.commands.record import CommandRecord, ReplyAddress, same_verdict
from fogline_cloud.commands.record import left_ms as time_left_ms
from fogline_cloud.commands.registry import Registry
from fogline_cloud.shard.owned_shard import Linger
from fogline_cloud.shard.work.command_changes import CommandChange

_log = logging.getLogger("fogline.commands.answers")
_log.addFilter(LogThrottle())
Settle = Callable[[Outcome], None]
P = ParamSpec("P")


@dataclass(slots=True)
class OpenCommand:
    """A command without a verdict, beside its record."""

    life: CommandLife
    expires_s: float  # the end of its time to live, on the loop's clock
    timer: asyncio.TimerHandle
    waiting: list[Settle] = field(default_factory=list)  # settles the operators' copies


class CommandTable:
    """All commands of one bridge. All methods but `learn` run on the loop.

    A command that expires while the gateway may have it waits `grace_s` longer for the gateway's verdict.
    """

    def __init__(
        self, shards: ShardTable, sender: CommandSender, grace_s: float, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.sender = sender
        self.registry = Registry()
        self.open: dict[str, OpenCommand] = {}
        self.unknown_devices = 0
        self.replies = ReplySender(self.acknowledge)
        self.waiters = VerdictWaiters(self.registry.get)
        self.now_ms = now_ms
        self._shards = shards
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Stop all timers."""
        for command in self.open.values():
            command.timer.cancel()
        self.waiters.close()

    def on(
        self, record: CommandRecord, event: Callable[Concatenate[CommandLife, Now, P], Effects], *args: P.args, **kw: P.kwargs
    ) -> None:
        """Report an event of `CommandLife`, with its arguments. `record`: of the command, if there is no newer one here."""
        command = self.open.get(record.id)
        one = command.life if command is not None else life.life_of(self.registry.get(record.id) or record)
        for effect in event(one, Now(self.now_ms(), self.sender.journal_of(record.gateway)), *args, **kw):
            self._perform(one, effect)

    def begin(self, record: CommandRecord, settle: Settle) -> None:
        """Take a direct command, and send it while its record is being written. `settle` gets its outcome."""
        self.registry.put(record)
        self._open(life.life_of(record)).waiting.append(settle)
        self.on(record, CommandLife.begun)

    def resume(self, gateway: str) -> None:
        """Send a gateway that has connected what it has not accepted: commands, requests to cancel, questions."""
        for record in self.registry.open_for(gateway):
            self.on(record, CommandLife.connected)

    def add_reply_link(self, address: ReplyAddress, sender: Sender) -> None:
        """Send an operator's replies over a new link, beginning with those that are due."""
        self.replies.add_link(address, sender, self.registry.owed_to(address))

    def learn(self, records: Sequence[CommandRecord]) -> None:
        """Take over records from a shard: verdicts, and commands that an earlier owner may have sent. Thread-safe."""
        for record in records:
            call_soon(self._loop, partial(self.on, record, CommandLife.learned, record, by_shard=True))

    def write(
        self,
        record: CommandRecord,
        committed: Callable[[CommandRecord], None],
        unknown: Callable[[], None],
        *,
        urgent: bool = True,
    ) -> None:
        """Ask the shard to write a record. Exactly one of `committed` and `unknown` follows, on the loop.

        `committed` gets the record that is current after the commit: this one, or one that it may not replace. `unknown`: the
        shard is not here, or went away before the commit was certain. `urgent`: somebody waits for the commit.
        """
        shard = self._shards.ready(self._shards.number_of(record.gateway))
        if shard is None:
            unknown()
            return
        calls = (committed, unknown, lambda other: self.on(other, CommandLife.replaced, other))
        done, given_up, replaced = (partial(call_soon, self._loop, each) for each in calls)
        linger = Linger.NONE if urgent else Linger.FULL
        shard.submit(CommandChange(record, done, given_up, replaced, linger=linger))

    def acknowledge(self, record: CommandRecord) -> None:
        """Note that an operator, or a part of the bridge that had sent the command, has taken its verdict."""
        known = self.registry.get(record.id)
        if known is None or same_verdict(known, record):  # else a newer verdict is due to the operator
            delivered = msgspec.structs.replace(record, reply_delivered=True)
            self.registry.put(delivered)
            self._write(life.WriteRecord(delivered, urgent=False))

    def _perform(self, one: CommandLife, effect: Effect) -> None:
        match effect:
            case life.WriteRecord():
                self._write(effect)
            case life.KeepRecord(record):
                self._keep(one, record)
            case life.SettleCopies(outcome):
                crash_point(CrashPoint.BEFORE_COMMAND_SETTLED)
                self._settle_copies(one.record.id, outcome)
            case life.SendCommand() | life.AskToCancel() | life.AskJournal():
                command = self.open.get(effect.record.id)
                left_ms = int((command.expires_s - self._loop.time()) * 1000) if command is not None else 0
                self.sender.perform(effect, left_ms, self.on)
            case life.Undecided():
                self.waiters.tell(one.record.id, None)
            case life.LookAgain(after_s):
                self.open[one.record.id].timer = self._loop.call_later(after_s, self._on_timer, one.record.id)

    def _write(self, effect: life.WriteRecord) -> None:
        record = effect.record
        self.write(
            record,
            lambda current: self.on(record, CommandLife.committed, effect, current),
            partial(self.on, record, CommandLife.not_committed, effect),
            urgent=effect.urgent,
        )

    def _on_timer(self, command_id: str) -> None:
        if (command := self.open.get(command_id)) is not None:
            late_s = self._loop.time() - command.expires_s
            self.on(command.life.record, CommandLife.overdue, late_s, self._grace_s)

    def _open(self, one: CommandLife) -> OpenCommand:
        record = one.record
        left_s = time_left_ms(record, self.now_ms()) / 1000
        timer = self._loop.call_later(left_s, self._on_timer, record.id)
        command = self.open[record.id] = OpenCommand(one, self._loop.time() + left_s, timer)
        return command

    def _keep(self, one: CommandLife, record: CommandRecord) -> None:
        forgotten = self.registry.forgotten_replies
        self.registry.put(record)
        if self.registry.forgotten_replies > forgotten:
            _log.warning("replies that no operator accepted are discarded here; fogline command show still has them")
        if record.id not in self.open and not record.state.terminal:
            self._open(one)
        if not record.state.terminal:
            return
        self._settle_copies(record.id, ACCEPTED)
        if record.owes_reply:
            self.replies.send(record)
        if (command := self.open.pop(record.id, None)) is not None:
            command.timer.cancel()
        self.waiters.tell(record.id, record)

    def _settle_copies(self, command_id: str, outcome: Outcome) -> None:
        command = self.open.get(command_id)
        if command is not None:
            waiting, command.waiting = command.waiting, []
            for settle in waiting:
                settle(outcome)
