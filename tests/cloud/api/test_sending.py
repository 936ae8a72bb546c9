"""How often a request's message is sent to the bridge, and for how long it lives."""

from types import SimpleNamespace

import pytest

from fogline.amqp.outcome import ACCEPTED, RELEASED
from fogline.connection_clock import monotonic_ms
from fogline.errors import Unreachable
from fogline.message import Message
from fogline_cloud.api import sending
from fogline_cloud.api.problems import Problem
from fogline_cloud.api.sending import send

LOST = object()


class Session(SimpleNamespace):
    """A user's session whose bridge has these outcomes in turn. `ends` has the end of the time to live of each attempt."""

    def __init__(self, *outcomes):
        super().__init__(is_closed=False, why="", outcomes=list(outcomes), ends=[])

    async def send(self, _message, ends_ms=None):
        self.ends.append(ends_ms)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if outcome is LOST:
            raise Unreachable("gone")
        return outcome


async def test_a_command_that_is_sent_again_lives_no_longer_than_one_that_is_not(monkeypatch):
    monkeypatch.setattr(sending, "RETRY_S", 0.05)
    session, began_ms = Session(LOST, RELEASED, ACCEPTED), monotonic_ms()
    await send(session, Message(ttl_ms=60_000), again=True, waits=True)
    assert len(session.ends) == 3
    assert len(set(session.ends)) == 1
    assert began_ms + 60_000 <= session.ends[0] <= monotonic_ms() + 60_000


async def test_a_command_is_not_sent_after_its_time_to_live(monkeypatch):
    monkeypatch.setattr(sending, "RETRY_S", 0.05)
    session = Session(RELEASED)
    with pytest.raises(Problem) as caught:
        await send(session, Message(ttl_ms=20), again=True, waits=True)
    assert "its time to live is over" in str(caught.value)
    assert len(session.ends) == 1


async def test_an_event_has_no_time_to_live():
    session = Session(ACCEPTED)
    await send(session, Message(), again=False, waits=True)
    assert session.ends == [None]
