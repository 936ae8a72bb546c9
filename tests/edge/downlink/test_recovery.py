"""Decisions about open commands after a restart."""

import pytest

from fogline.codec import Beacon
from fogline.command import CommandState, Deadline
from fogline_edge.downlink.recovery import RecoveryAction, recover
from fogline_lab.commands import make_command

NOW = Beacon("boot", 1000)


@pytest.mark.parametrize(
    ("state", "asked", "then"),
    [
        (CommandState.QUEUED, {}, RecoveryAction.QUEUE),
        (CommandState.SENDING, {}, RecoveryAction.AWAIT),
        (CommandState.SENDING, {"reply": False}, RecoveryAction.DOUBT),
        (CommandState.SENDING, {"idempotent": True}, RecoveryAction.QUEUE),
        (CommandState.QUEUED, {"deadline": Deadline("boot", 1000)}, RecoveryAction.EXPIRE),
        (CommandState.QUEUED, {"deadline": Deadline("before", 9000)}, RecoveryAction.EXPIRE),
        (CommandState.SENDING, {"deadline": Deadline("before", 9000), "idempotent": True}, RecoveryAction.DOUBT),
        (CommandState.SENDING, {"deadline": Deadline("boot", 999)}, RecoveryAction.DOUBT),
    ],
)
def test_a_restart(state, asked, then):
    command = make_command(**{"deadline": Deadline("boot", 2000), **asked})
    assert recover(command, state, NOW) is then
