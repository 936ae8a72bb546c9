"""Decides about an open command after a restart of the gateway, or after a connection that was lost. Pure.

| state in the journal | after a restart |
|---|---|
| QUEUED, deadline past or of another boot | expired: the device never got it |
| QUEUED | queued again |
| SENDING, deadline past or of another boot | in doubt |
| SENDING, idempotent | queued again: a second execution does no harm |
| SENDING, with a reply | waits for the device's answer until the deadline, then in doubt |
| SENDING, without a reply | in doubt |
"""

from enum import StrEnum

from fogline.codec import Beacon
from fogline.command import Command, CommandState


class RecoveryAction(StrEnum):
    """The next step of an open command."""

    QUEUE = "queue"
    AWAIT = "await"
    EXPIRE = "expire"
    DOUBT = "doubt"


def recover(command: Command, state: CommandState, now: Beacon) -> RecoveryAction:
    """Decide about one open command after a restart."""
    past = command.deadline.left_ms(now) <= 0
    if state is CommandState.QUEUED:
        return RecoveryAction.EXPIRE if past else RecoveryAction.QUEUE
    return RecoveryAction.DOUBT if past else after_uncertain_delivery(command)


def after_uncertain_delivery(command: Command) -> RecoveryAction:
    """Decide about a command, still in time, that may have reached its device or not."""
    if command.idempotent:
        return RecoveryAction.QUEUE
    return RecoveryAction.AWAIT if command.reply else RecoveryAction.DOUBT
