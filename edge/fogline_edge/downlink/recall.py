"""What a restart of the gateway makes of the commands in its journal. Pure.

| it was | and now |
|---|---|
| any state, and the deadline is past or of another boot | QUEUED: expired (the device never saw it); SENDING: in doubt |
| QUEUED | queued |
| SENDING, idempotent | queued: doing it twice does no harm |
| SENDING, with a reply | waits for the device's answer until the deadline, then in doubt |
| SENDING, without | in doubt |
"""

from enum import StrEnum

from fogline.codec import Beacon
from fogline.command import Command, State


class Recalled(StrEnum):
    """What to do with a command after a restart."""

    QUEUE = "queue"
    AWAIT = "await"
    EXPIRE = "expire"
    DOUBT = "doubt"


def recall(command: Command, state: State, now: Beacon) -> Recalled:
    """Decide about one command that is not over."""
    past = command.deadline.left_ms(now) <= 0
    if state is State.QUEUED:
        return Recalled.EXPIRE if past else Recalled.QUEUE
    return Recalled.DOUBT if past else unsure(command)


def unsure(command: Command) -> Recalled:
    """A command that may or may not have reached its device, in time: by a restart, or by a connection that ended."""
    if command.idempotent:
        return Recalled.QUEUE
    return Recalled.AWAIT if command.reply else Recalled.DOUBT
