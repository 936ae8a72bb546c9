"""Decisions about open commands after a restart."""

import pytest

from fogline.commands.command import CommandState, Deadline, Reply, Status
from fogline.events.codec import Beacon
from fogline_edge.downlink.command_task import IN_DOUBT, CommandTask, Finish, NextStep
from fogline_lab.commands import make_command

NOW = Beacon("boot", 1000)
EXPIRED = Finish(CommandState.EXPIRED, Reply(Status.EXPIRED))


@pytest.mark.parametrize(
    ("state", "asked", "then"),
    [
        (CommandState.QUEUED, {}, NextStep.QUEUE),
        (CommandState.SENDING, {}, NextStep.AWAIT),
        (CommandState.SENDING, {"reply": False}, IN_DOUBT),
        (CommandState.SENDING, {"idempotent": True}, NextStep.QUEUE),
        (CommandState.QUEUED, {"deadline": Deadline("boot", 1000)}, EXPIRED),
        (CommandState.QUEUED, {"deadline": Deadline("before", 9000)}, EXPIRED),
        (CommandState.SENDING, {"deadline": Deadline("before", 9000), "idempotent": True}, IN_DOUBT),
        (CommandState.SENDING, {"deadline": Deadline("boot", 999)}, IN_DOUBT),
    ],
)
def test_a_restart(state, asked, then):
    command = make_command(**{"deadline": Deadline("boot", 2000), **asked})
    assert CommandTask(command, state).resume(NOW) == then
