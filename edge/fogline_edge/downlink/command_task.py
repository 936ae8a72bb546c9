"""The life of a command at its gateway: when it goes to its device, and how it ends. Pure.

After a restart the journal's state decides:

| state in the journal | after a restart |
|---|---|
| QUEUED, deadline past or of another boot | expired: the device never got it |
| QUEUED | queued again |
| SENDING, deadline past or of another boot | in doubt |
| SENDING, idempotent | queued again: a second execution does no harm |
| SENDING, with a reply | waits for the device's answer until the deadline, then in doubt |
| SENDING, without a reply | in doubt |
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from fogline.commands.command import Command, CommandState, Reply, Status
from fogline.events.codec import Beacon

MAX_DOUBTS = 5
"""Attempts of an idempotent command with an unknown outcome. Then it waits for its answer, and the next command begins."""
LEAST_LEFT_MS = 1000
"""Time that a command needs before its deadline to begin: with less, its device could not answer in time on a busy line."""


class Finish(NamedTuple):
    """End the command in the journal, and report its end on lane `reply`."""

    state: CommandState
    reply: Reply


class NextStep(Enum):
    """What to do with a command that is not over."""

    QUEUE = auto()  # behind the others of its device
    EXECUTE = auto()  # hand it to the device's adapter
    PUT_BACK = auto()  # to the front of its queue; the device never got it, and the journal notes that as QUEUED
    REPEAT = auto()  # to the front of its queue; the device may have got it
    AWAIT = auto()  # nothing: its answer may come until its deadline; the next command of the device may begin


Effect = Finish | NextStep
IN_DOUBT = Finish(CommandState.IN_DOUBT, Reply(Status.NO_ANSWER))


@dataclass(slots=True, eq=False)
class CommandTask:
    """One open command. `state` is that of the journal, or will be after the commit under way.

    `doubts`: attempts with an unknown outcome. After one, `state` stays `SENDING`: `QUEUED` means that the device never got it.
    `cancelled`: the reason of a request to cancel it: no attempt begins any more.
    `stored`: the journal has it. Before, it only holds its place in the queue.
    `begun`: the device's adapter has it, or had it with an unknown outcome.
    """

    command: Command
    state: CommandState
    doubts: int = 0
    cancelled: str | None = None
    stored: bool = True
    begun: bool = False

    def resume(self, now: Beacon) -> Effect:
        """Return the next step after a restart of the gateway."""
        self.doubts = int(self.state is CommandState.SENDING)
        if self.command.deadline.left_ms(now) <= 0:
            return self.expire()
        return self._after_doubt() if self.doubts else NextStep.QUEUE

    def begin(self, now: Beacon, *, reachable: bool) -> Effect:
        """Return the next step once the journal has committed `SENDING`."""
        if self.command.deadline.left_ms(now) <= LEAST_LEFT_MS:
            return self.expire()
        if not reachable or self.cancelled is not None:
            return self.put_back()
        self.begun = True
        return NextStep.EXECUTE

    def put_back(self) -> Effect:
        """Return the next step of a command whose attempt did not begin, or ended without a byte to the device."""
        if self.cancelled is not None:
            return self.end_cancelled()
        if self.doubts:
            return NextStep.REPEAT
        self.state, self.begun = CommandState.QUEUED, False
        return NextStep.PUT_BACK

    def lose(self) -> Effect:
        """Return the next step after an attempt with an unknown outcome."""
        self.doubts += 1
        step = self._after_doubt()
        if step is not NextStep.QUEUE:
            return step
        return self.put_back() if self.doubts < MAX_DOUBTS else NextStep.AWAIT

    def expire(self) -> Finish:
        """Return the end of a command whose deadline has passed."""
        if self.begun or self.doubts:
            return IN_DOUBT
        return Finish(CommandState.EXPIRED, Reply(Status.EXPIRED))

    def end_cancelled(self) -> Finish:
        """Return the end of a command that was to be cancelled while it was under way, and that waits again."""
        return IN_DOUBT if self.doubts else Finish(CommandState.CANCELLED, cancelled(self.cancelled or ""))

    def _after_doubt(self) -> Effect:
        if self.command.idempotent:
            return NextStep.QUEUE
        return NextStep.AWAIT if self.command.reply else IN_DOUBT


def cancelled(why: str) -> Reply:
    """Return the reply of a command that was cancelled."""
    return Reply(Status.CANCELLED, why.encode(), "text/plain")
