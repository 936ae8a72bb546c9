"""The operator's client, against a bridge with scripted outcomes."""

import asyncio

import pytest

from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, RESOURCE_LIMIT, UNAUTHORIZED, rejected
from fogline.commands.command import EXPIRED, CommandState
from fogline_cloud.commands.client import operator as client
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_lab.amqp import End, served, within
from fogline_lab.clock import pass_time


class Bridge(End):
    """Settles the copies of a command with one outcome after the other, then with the last; `None` ends the connection."""

    def __init__(self, *outcomes):
        super().__init__(answer=self.outcome)
        self.outcomes = list(outcomes)

    def outcome(self, _):
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if outcome is None:
            self.connection.abort()
        return outcome


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, "RETRY_S", 0.01)
    monkeypatch.setattr(client, "DOUBT_S", 0.2)


async def verdict(bridge, *, durable, copies=0):
    """`copies`: the command's time to live ends after the bridge has got so many."""

    async def sent():
        while len(bridge.messages) < copies:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)

    async with served(bridge) as port, Operator("127.0.0.1", port, "acme") as operator:
        ask = Ask("lamp-1", "switch", durable=durable, reply=False, ttl_s=60.0)
        asked = asyncio.create_task(operator.request(ask))
        if copies:
            await within(sent(), "the command is not sent")
            pass_time(60)
        return await within(asked, "no verdict")


async def test_a_released_direct_command_is_rejected():
    found = await verdict(Bridge(RELEASED), durable=False)
    assert (found.state, found.status) == (CommandState.REJECTED, 503)


async def test_a_released_direct_command_is_sent_again_if_a_former_copy_may_have_been_taken():
    bridge = Bridge(None, RELEASED, ACCEPTED)
    assert (await verdict(bridge, durable=False)).state is CommandState.ACCEPTED
    assert len({message.message_id for message in bridge.messages}) == 1
    assert len(bridge.messages) == 3


@pytest.mark.parametrize(
    ("outcomes", "durable", "state"),
    [
        ((RELEASED,), True, CommandState.EXPIRED),
        ((MODIFIED, RELEASED), True, CommandState.IN_DOUBT),
        ((MODIFIED, RELEASED), False, CommandState.IN_DOUBT),
        ((None, RELEASED), False, CommandState.IN_DOUBT),
        ((None, rejected(RESOURCE_LIMIT, "over the quota")), True, CommandState.IN_DOUBT),
        ((None, rejected(UNAUTHORIZED, "no grant any more")), True, CommandState.IN_DOUBT),
    ],
)
async def test_a_command_that_no_bridge_takes_in_time_expires_unless_one_may_have_it(outcomes, durable, state):
    assert (await verdict(Bridge(*outcomes), durable=durable, copies=len(outcomes))).state is state


async def test_each_copy_has_the_remaining_time_to_live():
    bridge = Bridge(None, RELEASED, ACCEPTED)
    await verdict(bridge, durable=True)
    first, *later = [message.ttl_ms for message in bridge.messages]
    assert first <= 60_000
    assert first > later[0] > later[1] > 0


async def test_a_command_whose_time_is_over_before_a_bridge_is_there_expires_and_is_not_sent():
    bridge = Bridge(ACCEPTED)
    async with served(bridge) as port, Operator("127.0.0.1", port, "acme") as operator:
        found = await within(operator.request(Ask("lamp-1", "switch", ttl_s=0.0)), "no verdict")
    assert found.state is CommandState.EXPIRED
    assert not bridge.messages


async def test_a_command_that_a_bridge_may_have_taken_is_asked_for_after_its_time_to_live(monkeypatch):
    """The copy that comes too late to run brings its end."""
    monkeypatch.setattr(client, "DOUBT_S", 60.0)

    def outcome(message):
        return rejected(EXPIRED, "too late") if message.ttl_ms == 1 else MODIFIED

    bridge = End(answer=outcome)
    found = await verdict(bridge, durable=True, copies=1)
    assert (found.state, found.status) == (CommandState.EXPIRED, 408)
    assert len(bridge.messages) > 1


async def test_a_command_that_a_bridge_took_is_in_doubt_if_no_verdict_comes():
    """The connection ends after the bridge has accepted it, and no bridge takes a copy until its time is over."""
    bridge = Bridge(ACCEPTED, RELEASED)
    async with served(bridge) as port, Operator("127.0.0.1", port, "acme") as operator:
        asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=60.0)))

        async def taken():
            while not any(each.maybe_taken for each in operator._pending.values()):  # noqa: ASYNC110 - nothing tells it
                await asyncio.sleep(0.01)

        await within(taken(), "no outcome")
        bridge.connection.abort()
        pass_time(60)
        assert (await within(asked, "no verdict")).state is CommandState.IN_DOUBT
