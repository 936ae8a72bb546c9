"""The life of a command at its bridge, from its first record to its verdict: the one place that decides about it. Pure.

Each public method of `CommandLife` takes an event, and returns the effects that the bridge has to perform, in their order.

No bridge starts a direct command a second time. If its outcome was lost with a connection or a bridge, the bridge asks the
gateway's journal. If the journal does not have the command, it ends as released: the operator's next copy is a new attempt.

Only the journal to which a command was sent can say that it does not have it. A record names that journal before the command
is sent. If a gateway comes with another one, because it was restored, salvaged or got a new card, the bridge asks that one too.
What it does not have may have been executed from the former journal, so it ends IN_DOUBT and is not sent again.

A command that may have left the bridge becomes CANCELLING, and that is committed before its gateway is asked. From then on
the command is not sent again, and the gateway's journal decides: at once, or when the gateway is back. A command that a newer
one replaces (newest wins) is cancelled in the same way; only its reason is another.

A command that needs a second operator is PROPOSED until that one has approved it. Nothing of it leaves the bridge before its
record says ACCEPTED, with the approver's name.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from msgspec.structs import replace

from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, RESOURCE_LIMIT, DeliveryState, Outcome, rejected
from fogline.commands.command import CONFLICT, EXPIRED, REMEMBER_COMMANDS_S, CommandState, Reply, Status
from fogline_cloud.commands.record import CommandRecord, ended, why_cancelled
from fogline_cloud.commands.succession import as_cancelled, is_outdated, may_replace

RETRY_S = 5.0
"""The pause before a verdict is written again that could not be written."""
MEMORY_MS = (REMEMBER_COMMANDS_S - 86_400) * 1000
"""Age of a command from which its journal may have forgotten it, with a margin for the bridge's clock."""
_REFUSALS = {
    EXPIRED: (CommandState.EXPIRED, Status.EXPIRED),
    CONFLICT: (CommandState.REJECTED, Status.CONFLICT),
    RESOURCE_LIMIT: (CommandState.REJECTED, Status.QUOTA),
}
_CANCEL_REQUESTS = (CommandState.CANCELLING, CommandState.CANCELLED)
_ANOTHER = "its gateway has another journal of commands than the one to which it was sent: the device may have executed it"
_OLD = "its gateway's journal may have forgotten it: the device may have executed it"


class JournalLookup(Enum):
    """A journal's answer to the question whether it has a command."""

    FOUND = auto()  # its reply comes on lane `reply`, or has come
    DIFFERENT = auto()  # the journal has another command under this id
    ABSENT = auto()
    REFUSED = auto()  # the gateway refuses the question
    UNANSWERED = auto()  # the gateway is not connected, or its connection ended first


class WriteRecord(NamedTuple):
    """Have the shard write this record. `outcome` settles the operators' copies after the commit; MODIFIED if in doubt.

    Unless it is `urgent`, it is committed with the answer of a device that answers at once.
    """

    record: CommandRecord
    outcome: Outcome | None = None
    urgent: bool = True


class KeepRecord(NamedTuple):
    """Keep this record as the current one. With a verdict, the command is over here: send the reply, and tell who waits."""

    record: CommandRecord


class SettleCopies(NamedTuple):
    """Settle the operators' copies of the command."""

    outcome: Outcome


class SendCommand(NamedTuple):
    """Send the command to its gateway."""

    record: CommandRecord


class AskJournal(NamedTuple):
    """Ask the gateway's journal whether it has the command. `to_cancel`: if it has, the gateway is asked to cancel it."""

    record: CommandRecord
    to_cancel: bool = False


class AskToCancel(NamedTuple):
    """Have the gateway's journal decide whether the command is cancelled."""

    record: CommandRecord


class Undecided(NamedTuple):
    """Tell who waits for the verdict that nothing is known at present."""


class LookAgain(NamedTuple):
    """Report `overdue` again after so many seconds."""

    after_s: float


Effect = WriteRecord | KeepRecord | SettleCopies | SendCommand | AskJournal | AskToCancel | Undecided | LookAgain
Effects = list[Effect]


class _Verdict(NamedTuple):
    """A verdict that no device gave."""

    state: CommandState
    status: Status
    why: str


class Now(NamedTuple):
    """The bridge's wall clock, and the name of the journal of the command's gateway; `None` if that cannot take commands."""

    ms: int
    journal: str | None


@dataclass(slots=True)
class CommandLife:
    """One command at one bridge.

    `record` is the current one, as far as this bridge knows; `opened`: the bridge follows the command until it has a verdict.
    `maybe_sent`: the gateway may have the command. It is not sent while a verdict (`ending`) or a cancellation (`cancelling`)
    is being written or stands. `doubted`: a provisional verdict was to be written.
    """

    record: CommandRecord
    opened: bool = False
    maybe_sent: bool = False
    ending: bool = False
    doubted: bool = False
    cancelling: bool = False

    @property
    def awaits_gateway(self) -> bool:
        """True if only its gateway can end the command: nobody cancels it, and no verdict of the bridge is being written."""
        decided_here = self.ending or self.doubted or self.cancelling
        return self.opened and not (decided_here or self.record.of_kafka)

    # --- events

    def begun(self, now: Now) -> Effects:
        """A direct command was taken. It is sent while its record is being written."""
        self.opened = True
        return [WriteRecord(self.record, urgent=False), *self._send(now)]

    def connected(self, now: Now) -> Effects:
        """The gateway can take commands: it has connected, or the command's record was committed while it was."""
        record = self.record
        if record.cancelling:
            return self._cancel(now)
        if record.outcome_unknown or (record.state is CommandState.DISPATCHED and record.journal != now.journal):
            return [AskJournal(record)]
        return self._send(now) if record.state is CommandState.ACCEPTED else []

    def outcome(self, now: Now, sent: CommandRecord, outcome: Outcome) -> Effects:
        """The gateway has settled the command that it was sent."""
        if outcome.state is DeliveryState.ACCEPTED:
            return [_dispatched(sent, now)]
        if self.cancelling and now.journal is not None:
            return []  # the gateway's answer to that ends the command
        if outcome.state is DeliveryState.RELEASED:
            absent = _Verdict(CommandState.REJECTED, Status.OFFLINE, "the device is not connected")
            return self._end(sent, absent, now, RELEASED)
        if outcome.state is DeliveryState.REJECTED:
            state, status = _REFUSALS.get(outcome.condition, (CommandState.REJECTED, Status.UNDELIVERABLE))
            return self._end(sent, _Verdict(state, status, outcome.description), now, outcome)
        return []

    def answered(self, now: Now, question: AskJournal, lookup: JournalLookup, journal: str) -> Effects:
        """The journal of this name has answered a question."""
        asked, to_cancel = question
        if lookup is not JournalLookup.FOUND and not to_cancel and self.cancelling and now.journal is not None:
            return []  # the gateway's answer to that ends the command
        match lookup:
            case JournalLookup.FOUND if to_cancel:
                return [AskToCancel(asked)]
            case JournalLookup.FOUND if not asked.provisional:
                return [_dispatched(asked if asked.journal == journal else asked.sent_to(journal), now)]
            case JournalLookup.DIFFERENT:
                why = f"command {asked.id} is known at its gateway with another body"
                return self._end(asked, _Verdict(CommandState.REJECTED, Status.CONFLICT, why), now, rejected(CONFLICT, why))
            case JournalLookup.ABSENT:
                verdict = _absent(question, journal, now)
                never_seen = verdict.state in (CommandState.EXPIRED, CommandState.REJECTED)
                return self._end(asked, verdict, now, RELEASED if never_seen else None)
        return []

    def approved(self, now: Now, by: str) -> Effects:
        """The second operator has approved the command. `by` was checked. Who waits is told after the commit."""
        if self.ending or self.cancelling or self.record.state is not CommandState.PROPOSED:
            return [SettleCopies(MODIFIED)]
        approved = replace(self.record, state=CommandState.ACCEPTED, approved_by=by, changed_ms=now.ms)
        return [WriteRecord(approved, ACCEPTED)]

    def cancel_asked(self, now: Now, by: str, newer: str = "") -> Effects:
        """`by` asks to cancel the command, because `newer` takes its place if that is given."""
        if self.ending or self.cancelling:
            return []
        self.cancelling = True
        asked = as_cancelled(self.record, by, now.ms, newer)
        if not self.maybe_sent and self.record.state in (CommandState.PROPOSED, CommandState.ACCEPTED):
            asked = _ended(asked, _cancelled(asked), now.ms)
        return [WriteRecord(asked)]

    def replaced(self, now: Now, record: CommandRecord) -> Effects:
        """The shard has committed that a newer command replaces this one."""
        is_here = self.opened and not self.maybe_sent
        effects = self.learned(now, record)
        if not self.opened or not self.record.cancelling or self.ending:
            return effects  # it is over, or about to be: a verdict of this bridge follows
        self.cancelling = True
        return [*effects, *(self._end(self.record, _cancelled(self.record), now) if is_here else self._cancel(now))]

    def overdue(self, now: Now, late_s: float, grace_s: float) -> Effects:
        """The time to live has been over for `late_s`. A gateway that may have the command gets `grace_s` to report."""
        if not self.maybe_sent:
            proposed = self.record.state is CommandState.PROPOSED
            why = "no second operator approved it in time" if proposed else "the gateway was not connected in time"
            late = _Verdict(CommandState.EXPIRED, Status.EXPIRED, why)
            return [*self._end(self.record, late, now), LookAgain(RETRY_S)]
        if late_s < grace_s:
            return [LookAgain(grace_s - late_s)]
        doubt = _Verdict(CommandState.IN_DOUBT, Status.NO_ANSWER, "the gateway did not report an outcome")
        # Until the verdict is written: Kafka may be unreachable.
        return [*self._end(self.record, doubt, now, provisional=True), LookAgain(RETRY_S)]

    def committed(self, now: Now, write: WriteRecord, current: CommandRecord) -> Effects:
        """After this write, `current` is the current record: the one to be written, or one that it may not replace."""
        asked, outcome = write.record, write.outcome
        is_current = current.state is asked.state or (current.cancelling and outcome == ACCEPTED)
        effects: Effects = [SettleCopies(outcome)] if outcome is not None and is_current else []
        effects += self.learned(now, current)
        if asked.final:  # else a verdict may still follow
            self.ending = False
        if not self.opened:
            return effects
        if asked.state in _CANCEL_REQUESTS:
            self.cancelling = self.record.cancelling
            return [*effects, *(self._cancel(now) if self.cancelling else [])]
        is_noted = asked.durable and asked.state is self.record.state is CommandState.ACCEPTED
        return [*effects, *(self._send(now) if is_noted else [])]

    def not_committed(self, _: Now, write: WriteRecord) -> Effects:
        """The shard is not here, or went away before the commit was certain. Its next owner says what was committed."""
        if write.record.final:
            self.ending = False
        effects: Effects = [SettleCopies(MODIFIED)] if write.outcome is not None else []
        if write.record.state in _CANCEL_REQUESTS:
            self.cancelling = self.record.cancelling
            effects.append(Undecided())
        return effects

    def learned(self, _: Now, record: CommandRecord, *, by_shard: bool = False) -> Effects:
        """This record is the current one, or was when it was read. `by_shard`: an earlier owner may have sent the command."""
        known = self.record
        self.maybe_sent |= by_shard and bool(record.journal)
        # A verdict is taken over before its commit, so it may overtake an older record that was committed.
        if is_outdated(known, record) or may_replace(record, known):
            return []
        if known.digest and not record.digest and not known.state.terminal:
            return []  # a reply to a former bridge's attempt: the gateway's outcome of this one follows (`keep_verdict`)
        self.record, self.opened = record, not record.state.terminal
        is_asked = record.state is CommandState.CANCELLING and bool(record.journal)
        self.maybe_sent |= record.state is CommandState.DISPATCHED or is_asked
        self.cancelling |= record.cancelling
        return [KeepRecord(record)]

    # --- decisions

    def _send(self, now: Now) -> Effects:
        """Send the command if its record names the gateway's journal. Else write that first."""
        if now.journal is None or self.ending or self.cancelling:
            return []
        if self.record.journal == now.journal:
            self.maybe_sent = True
            return [SendCommand(self.record)]
        if self.maybe_sent:
            return [AskJournal(self.record)]
        return [WriteRecord(self.record.sent_to(now.journal))]

    def _cancel(self, now: Now) -> Effects:
        if now.journal is None or self.ending:
            return []  # with `ending`, a verdict of this bridge is being written, and the journal must not have another
        if self.opened and not self.maybe_sent and not self.record.journal:
            return self._end(self.record, _cancelled(self.record), now)
        if self.record.journal != now.journal:
            return [AskJournal(self.record, to_cancel=True)]
        return [AskToCancel(self.record)]

    def _end(
        self, record: CommandRecord, verdict: _Verdict, now: Now, outcome: Outcome | None = None, *, provisional: bool = False
    ) -> Effects:
        """Write a verdict. `outcome` replaces the reply of a direct command. `provisional`: the journal is asked again."""
        if provisional:
            if self.ending or self.cancelling is not record.cancelling:
                return []  # a verdict or a cancellation is being written, which this record does not have
            self.doubted = True
        else:
            self.ending = True
        end = _ended(record, verdict, now.ms, provisional=provisional)
        if outcome is not None:
            # An operator that gets a provisional verdict gets the final one as a further reply.
            doubted = self.doubted and self.record.attempt == record.attempt
            end = replace(end, reply_delivered=not record.durable and not doubted and not record.of_kafka)
        return [WriteRecord(end, outcome)]


def life_of(record: CommandRecord) -> CommandLife:
    """Return the life of a command that this bridge does not follow at present."""
    return CommandLife(record, doubted=record.provisional, cancelling=record.cancelling)


def _dispatched(record: CommandRecord, now: Now) -> WriteRecord:
    return WriteRecord(replace(record, state=CommandState.DISPATCHED, changed_ms=now.ms), ACCEPTED, urgent=False)


def _absent(question: AskJournal, journal: str, now: Now) -> _Verdict:
    """Return the verdict on a command that a journal does not have: the device never got it, if that journal would know."""
    asked, to_cancel = question
    if asked.journal not in ("", journal):
        return _Verdict(CommandState.IN_DOUBT, Status.NO_ANSWER, _ANOTHER)
    if now.ms - asked.accepted_ms >= MEMORY_MS:
        return _Verdict(CommandState.IN_DOUBT, Status.NO_ANSWER, _OLD)
    if to_cancel:
        return _cancelled(asked)
    if asked.provisional:
        return _Verdict(CommandState.EXPIRED, Status.EXPIRED, "the gateway did not get it")
    return _Verdict(CommandState.REJECTED, Status.OFFLINE, "the gateway did not get it")


def _cancelled(record: CommandRecord) -> _Verdict:
    return _Verdict(CommandState.CANCELLED, Status.CANCELLED, why_cancelled(record))


def _ended(record: CommandRecord, verdict: _Verdict, now_ms: int, *, provisional: bool = False) -> CommandRecord:
    reply = Reply(int(verdict.status), verdict.why.encode(), "text/plain")
    return ended(record, verdict.state, reply, now_ms, why=verdict.why, provisional=provisional)
