"""All commands, their timers and waiting operators, on the event loop: a copy of the records that the shards have committed."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from fogline.amqp.outcome import ACCEPTED, MODIFIED, Outcome
from fogline.amqp.sending import Sender
from fogline.command import CommandState, Reply, Status
from fogline.process.crash_points import CrashPoint, crash_point
from fogline.process.log_throttle import LogThrottle
from fogline.process.loop_calls import call_soon
from fogline_cloud.bridge.commands.replies import ReplySender
from fogline_cloud.bridge.commands.verdict_waiters import VerdictWaiters
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.commands.record import CommandRecord, ReplyAddress, ended, left_ms, same_verdict
from fogline_cloud.commands.registry import Registry, is_outdated, may_replace
from fogline_cloud.shard.command_changes import CommandChange
from fogline_cloud.shard.owned_shard import Linger

RETRY_S = 5.0
"""The pause before a verdict is written again that could not be written."""

_log = logging.getLogger("fogline.commands.answers")
_log.addFilter(LogThrottle())
Settle = Callable[[Outcome], None]


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class OpenCommand:
    """A command without a verdict, beside its record. It is not sent while a verdict or a cancellation is being written."""

    expires_s: float  # the end of its time to live, on the loop's clock
    timer: asyncio.TimerHandle
    maybe_sent: bool = False  # the gateway may have it
    ending: bool = False  # a verdict of this bridge is being written
    doubted: bool = False  # a provisional verdict is being written
    cancelling: bool = False  # it is to be cancelled
    waiting: list[Settle] = field(default_factory=list)  # settles the operators' copies


class CommandTable:
    """All commands of one bridge. All methods but `learn` run on the loop.

    A command that expires while the gateway may have it waits `grace_s` longer for the gateway's verdict.
    """

    def __init__(self, shards: ShardTable, grace_s: float, now_ms: Callable[[], int] = wall_clock_ms) -> None:
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

    def follow(self, record: CommandRecord) -> OpenCommand:
        """Follow a command until it has a verdict."""
        command = self.open.get(record.id)
        if command is None:
            left_s = left_ms(record, self.now_ms()) / 1000
            timer = self._loop.call_later(left_s, self._on_timer, record.id)
            command = self.open[record.id] = OpenCommand(self._loop.time() + left_s, timer)
            self.registry.put(record)
        return command

    def add_reply_link(self, address: ReplyAddress, sender: Sender) -> None:
        """Send an operator's replies over a new link, beginning with those that are due."""
        self.replies.add_link(address, sender, self.registry.owed_to(address))

    def write(
        self,
        record: CommandRecord,
        committed: Callable[[CommandRecord], None],
        unknown: Callable[[], None],
        replaced: Callable[[CommandRecord], None] = lambda _: None,
        *,
        urgent: bool = True,
    ) -> None:
        """Ask the shard to write a record. Exactly one of `committed` and `unknown` follows, on the loop.

        `committed` gets the record that is current after the commit: this one, or one that it may not replace. `unknown`: the
        shard is not here, or went away before the commit was certain. `replaced` gets each command that a new one replaces.
        `urgent`: somebody waits for the commit.
        """
        shard = self._shards.ready(self._shards.number_of(record.gateway))
        if shard is None:
            unknown()
            return
        done, given_up, others = (partial(call_soon, self._loop, each) for each in (committed, unknown, replaced))
        linger = Linger.NONE if urgent else Linger.FULL
        shard.submit(CommandChange(record, done, given_up, others, linger=linger))

    def change(self, record: CommandRecord, outcome: Outcome | None = None, *, urgent: bool = False) -> None:
        """Ask the shard to write a record if the current one allows it. `outcome` settles its copies; MODIFIED if in doubt.

        Unless it is `urgent`, it is committed with the answer of a device that answers at once.
        """
        unknown = partial(self._on_unknown, record.id, MODIFIED if outcome is not None else None)
        self.write(record, partial(self._on_changed, outcome, record), unknown, urgent=urgent)

    def end(
        self,
        record: CommandRecord,
        state: CommandState,
        status: Status,
        why: str,
        outcome: Outcome | None = None,
        *,
        provisional: bool = False,
    ) -> None:
        """Ask the shard to write a verdict that no device gave. `outcome` replaces the reply of a direct command.

        `provisional`: the gateway's journal is asked again.
        """
        reply = Reply(int(status), why.encode(), "text/plain")
        end = ended(record, state, reply, self.now_ms(), why=why, provisional=provisional)
        command, known = self.open.get(record.id), self.registry.get(record.id) or record
        if command is not None and end.provisional:
            if command.ending or command.cancelling is not record.cancelling:
                return  # a verdict or a cancellation is being written, which this record does not have
            command.doubted = True
        elif command is not None:
            command.ending = True
        if outcome is not None:
            # An operator that gets a provisional verdict gets the final one as a further reply.
            doubted = command.doubted if command is not None else known.provisional and known.attempt == record.attempt
            delivered = not record.durable and not doubted and not record.of_kafka
            end = msgspec.structs.replace(end, reply_delivered=delivered)
        self.change(end, outcome, urgent=True)

    def _on_changed(self, outcome: Outcome | None, asked: CommandRecord, current: CommandRecord) -> None:
        if outcome is not None and (current.state is asked.state or (current.cancelling and outcome == ACCEPTED)):
            crash_point(CrashPoint.BEFORE_COMMAND_SETTLED)
            self._settle_copies(current.id, outcome)
        self.take_over(current)
        command = self.open.get(current.id)
        if command is not None and asked.final:  # else a verdict may still follow
            command.ending = False

    def _on_unknown(self, command_id: str, outcome: Outcome | None) -> None:
        if (command := self.open.get(command_id)) is not None:
            command.ending = False  # its shard says what was committed, before anything is sent again
        self._settle_copies(command_id, outcome)

    def learn(self, records: Sequence[CommandRecord]) -> None:
        """Take over records from a shard: verdicts, and commands that an earlier owner may have sent. Thread-safe."""
        for record in records:
            call_soon(self._loop, self._learn, record)

    def _learn(self, record: CommandRecord) -> None:
        self.take_over(record)
        if (command := self.open.get(record.id)) is not None and record.journal:
            command.maybe_sent = True

    def take_over(self, record: CommandRecord) -> None:
        """Store a record that a shard reports as current, and send its reply if one is due."""
        known = self.registry.get(record.id)
        # A verdict is taken over before its commit, so it may overtake an older record that was committed.
        if known is not None and (is_outdated(known, record) or may_replace(record, known)):
            return
        if known is not None and known.digest and not record.digest and not known.state.terminal:
            return  # a reply to a former bridge's attempt: the gateway's outcome of this one follows (`keep_verdict`)
        forgotten = self.registry.forgotten_replies
        self.registry.put(record)
        if self.registry.forgotten_replies > forgotten:
            _log.warning("replies that no operator accepted are discarded here; fogline command show still has them")
        if record.state.terminal:
            self._settle_copies(record.id, ACCEPTED)
            if record.owes_reply:
                self.replies.send(record)
            if (command := self.open.pop(record.id, None)) is not None:
                command.timer.cancel()
            self.waiters.tell(record.id, record)
        else:
            command = self.follow(record)
            is_there = record.state is CommandState.DISPATCHED
            is_asked = record.state is CommandState.CANCELLING and bool(record.journal)
            command.maybe_sent = command.maybe_sent or is_there or is_asked
            command.cancelling = command.cancelling or record.cancelling

    def acknowledge(self, record: CommandRecord) -> None:
        """Note that an operator, or a part of the bridge that had sent the command, has taken its verdict."""
        known = self.registry.get(record.id)
        if known is None or same_verdict(known, record):  # else a newer verdict is due to the operator
            delivered = msgspec.structs.replace(record, reply_delivered=True)
            self.registry.put(delivered)
            self.change(delivered)

    def _settle_copies(self, command_id: str, outcome: Outcome | None) -> None:
        command = self.open.get(command_id)
        if command is not None and outcome is not None:
            waiting, command.waiting = command.waiting, []
            for settle in waiting:
                settle(outcome)

    def _on_timer(self, command_id: str) -> None:
        """End an expired command, or wait for the gateway's verdict until the grace time is over."""
        record, command = self.registry.get(command_id), self.open.get(command_id)
        if record is None or command is None or record.state.terminal:
            return
        late_s = self._loop.time() - command.expires_s
        next_s = RETRY_S  # until the verdict is written: Kafka may be unreachable
        if not command.maybe_sent:
            self.end(record, CommandState.EXPIRED, Status.EXPIRED, "the gateway was not connected in time")
        elif late_s >= self._grace_s:
            why = "the gateway did not report an outcome"
            self.end(record, CommandState.IN_DOUBT, Status.NO_ANSWER, why, provisional=True)
        else:
            next_s = self._grace_s - late_s
        command.timer = self._loop.call_later(next_s, self._on_timer, command_id)
