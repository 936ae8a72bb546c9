"""The operator's end of the command API, against a bridge that says what it is told to say."""

import pytest

from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED
from fogline.command import State
from fogline.testing.amqp import End, served, within
from fogline_cloud.commands import client
from fogline_cloud.commands.client import Ask, Operator


class Bridge(End):
    """Says one word after the other of the copies of a command, the last one for ever; `None`: the connection ends."""

    def __init__(self, *words):
        super().__init__(answer=self.word)
        self.words = list(words)

    def word(self, _):
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        if word is None:
            self.connection.abort()
        return word


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, "RETRY_S", 0.01)


async def verdict(bridge, *, durable, ttl_s=60.0):
    async with served(bridge) as port, Operator("127.0.0.1", port, "acme") as operator:
        ask = Ask("lamp-1", "switch", durable=durable, reply=False, ttl_s=ttl_s)
        return await within(operator.request(ask), "no verdict")


async def test_a_direct_command_that_is_released_is_refused():
    found = await verdict(Bridge(RELEASED), durable=False)
    assert (found.state, found.status) == (State.REJECTED, 503)


async def test_but_not_if_a_former_copy_may_have_been_taken():
    bridge = Bridge(None, RELEASED, ACCEPTED)
    assert (await verdict(bridge, durable=False)).state is State.ACCEPTED
    assert len({message.message_id for message in bridge.messages}) == 1
    assert len(bridge.messages) == 3


@pytest.mark.parametrize(
    ("words", "durable", "state"),
    [
        ((RELEASED,), True, State.EXPIRED),
        ((MODIFIED, RELEASED), True, State.IN_DOUBT),
        ((MODIFIED, RELEASED), False, State.IN_DOUBT),
        ((None, RELEASED), False, State.IN_DOUBT),
    ],
)
async def test_what_no_bridge_takes_in_time_is_expired_unless_one_may_have_it(words, durable, state):
    assert (await verdict(Bridge(*words), durable=durable, ttl_s=1.0)).state is state
