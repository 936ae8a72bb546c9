"""What a restart makes of a command: histories in, decisions out."""

import pytest

from fogline.codec import Beacon
from fogline.command import Deadline, State
from fogline.testing.commands import make_command
from fogline_edge.downlink.recall import Recalled, recall

NOW = Beacon("boot", 1000)


@pytest.mark.parametrize(
    ("state", "asked", "then"),
    [
        (State.QUEUED, {}, Recalled.QUEUE),
        (State.SENDING, {}, Recalled.AWAIT),
        (State.SENDING, {"reply": False}, Recalled.DOUBT),
        (State.SENDING, {"idempotent": True}, Recalled.QUEUE),
        (State.QUEUED, {"deadline": Deadline("boot", 1000)}, Recalled.EXPIRE),
        (State.QUEUED, {"deadline": Deadline("before", 9000)}, Recalled.EXPIRE),
        (State.SENDING, {"deadline": Deadline("before", 9000), "idempotent": True}, Recalled.DOUBT),
        (State.SENDING, {"deadline": Deadline("boot", 999)}, Recalled.DOUBT),
    ],
)
def test_a_restart(state, asked, then):
    command = make_command(**{"deadline": Deadline("boot", 2000), **asked})
    assert recall(command, state, NOW) is then
