"""An answer is sent until its operator has accepted it, as long as a link listens (B6)."""

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest

from cloud.commands.test_dispatch import OneShard
from cloud.commands.test_registry import over, record, reply_event
from fogline.amqp import wire
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, UNKNOWN, rejected
from fogline.command import Answer, State
from fogline.errors import Poison, Unreachable
from fogline.signature import Signer
from fogline.testing.amqp import within
from fogline_cloud.bridge.gateways import GatewayDesk
from fogline_cloud.commands import replies as module
from fogline_cloud.commands.dispatch import Dispatcher
from fogline_cloud.commands.record import ended, of_reply
from fogline_cloud.commands.replies import MAX_ON_THE_WAY, Replies
from fogline_cloud.commands.routes import Routes
from fogline_cloud.settings import CommandSettings


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.01)


class Sender:
    """An operator's link. `sent`: the answers that went over it, each with the future of its outcome."""

    def __init__(self):
        self.link = SimpleNamespace(closed=False)
        self.closed = False
        self.sent = []
        self._came = asyncio.Event()

    def send(self, message):
        future = asyncio.get_running_loop().create_future()
        self.sent.append((message, future))
        self._came.set()
        return future

    async def has(self, count):
        async def wait():
            while len(self.sent) < count:
                self._came.clear()
                await self._came.wait()

        await within(wait(), f"only {len(self.sent)} of {count} answers were sent")
        return self.sent[count - 1]

    def end(self):
        """The connection is lost: nobody knows what became of what was on its way."""
        self.closed = True
        for _, future in self.sent:
            if not future.done():
                future.set_exception(Unreachable("it is lost"))


class Told:
    def __init__(self):
        self.records = []
        self.came = asyncio.Event()

    def __call__(self, told):
        self.records.append(told)
        self.came.set()


@pytest.fixture
def told():
    return Told()


@pytest.mark.fault("X5")
async def test_an_answer_on_its_way_over_a_half_open_link_is_sent_over_the_new_one(told):
    """B6: the operator is back before the bridge knows that its former connection is lost."""
    replies, half_open, new = Replies(told), Sender(), Sender()
    replies.listens("me", half_open, [over(State.SUCCEEDED)])
    await half_open.has(1)
    replies.listens("me", new, [over(State.SUCCEEDED)])
    assert new.sent == []
    half_open.end()
    replies.stops_listening(half_open.link)
    _, outcome = await new.has(1)
    outcome.set_result(ACCEPTED)
    await within(told.came.wait(), "nobody learns that it was accepted")
    assert [each.id for each in told.records] == ["C1"]


@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED, UNKNOWN, rejected("amqp:internal-error", "no")], ids=str)
async def test_an_answer_that_is_not_accepted_is_sent_again_over_the_same_link(told, outcome):
    """B6."""
    replies, sender = Replies(told), Sender()
    replies.listens("me", sender, [over(State.SUCCEEDED)])
    for count in (1, 2):
        (await sender.has(count))[1].set_result(outcome)
    (await sender.has(3))[1].set_result(ACCEPTED)
    await within(told.came.wait(), "nobody learns that it was accepted")
    assert len(sender.sent) == 3


async def test_the_older_of_two_links_gets_the_answers_when_the_newer_one_ends(told):
    replies, older, newer = Replies(told), Sender(), Sender()
    replies.listens("me", older, [])
    replies.listens("me", newer, [over(State.SUCCEEDED)])
    await newer.has(1)
    newer.end()
    replies.stops_listening(newer.link)
    await older.has(1)


async def test_pauses_between_attempts_grow_and_end_with_a_new_link(told, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 7200.0)
    assert [module.pause_s(failures) for failures in (1, 2, 3, 100_000)] == [3600, 7200, 7200, 7200]
    replies, refusing, new = Replies(told), Sender(), Sender()
    replies.listens("me", refusing, [over(State.SUCCEEDED)])
    (await refusing.has(1))[1].set_result(RELEASED)
    await asyncio.sleep(0)
    replies.send(over(State.SUCCEEDED))
    assert len(refusing.sent) == 1
    replies.listens("me", new, [over(State.SUCCEEDED)])
    await new.has(1)


async def test_an_operator_that_takes_nothing_has_a_bounded_number_on_their_way_and_stops_nobody(told):
    """Isolation: one operator never settles its answers, another one takes its own."""
    replies, greedy, honest = Replies(told), Sender(), Sender()
    replies.listens("greedy", greedy, [])
    replies.listens("me", honest, [])
    for number in range(1000):
        replies.send(msgspec.structs.replace(over(State.SUCCEEDED), id=f"G{number}", reply_to="greedy"))
    replies.send(over(State.SUCCEEDED))
    (await honest.has(1))[1].set_result(ACCEPTED)
    await within(told.came.wait(), "the honest operator waits")
    assert [each.id for each in told.records] == ["C1"]
    assert len(greedy.sent) == MAX_ON_THE_WAY
    greedy.sent[0][1].set_result(ACCEPTED)
    await greedy.has(MAX_ON_THE_WAY + 1)


async def test_a_newer_verdict_does_not_wait_for_the_pause_of_the_former_one(told, monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 3600.0)
    replies, sender = Replies(told), Sender()
    replies.listens("me", sender, [over(State.IN_DOUBT, provisional=True)])
    (await sender.has(1))[1].set_result(RELEASED)
    await asyncio.sleep(0)
    replies.send(over(State.SUCCEEDED))
    message, _ = await sender.has(2)
    assert message.properties["state"] == "SUCCEEDED"


class EncodingSender(Sender):
    """Encodes as a real link does."""

    def send(self, message):
        wire.encode(message)
        return super().send(message)


@pytest.mark.parametrize("wrong", [{"status": 2**40}, {"correlation": "garbage"}, {"answer_type": "\ud800"}], ids=str)
async def test_an_answer_that_cannot_be_written_as_amqp_stops_no_other(told, wrong, caplog):
    """Isolation: a gateway that says nonsense of one command does not keep an operator from its other answers."""
    replies, sender = Replies(told), EncodingSender()
    good = msgspec.structs.replace(over(State.SUCCEEDED), id="C2")
    replies.listens("me", sender, [msgspec.structs.replace(over(State.SUCCEEDED), **wrong), good])
    message, _ = await sender.has(1)
    assert message.properties["command_id"] == "C2"
    assert "the answer to command C1 cannot be sent" in caplog.text


@pytest.mark.parametrize("status", [-1, 0, 199, 600, 2**40])
def test_a_reply_whose_status_is_none_ends_no_command(status):
    with pytest.raises(Poison):
        of_reply(reply_event(status=status), record(), 77)


def dispatcher():
    shard = OneShard()
    shard.ready = True
    return Dispatcher(shard, GatewayDesk(shard, 1, 100.0), Routes(), CommandSettings(), Signer()), shard


async def test_the_gateways_verdict_is_sent_though_the_provisional_one_was_accepted():
    commands, shard = dispatcher()
    sender = Sender()
    commands.listens("me", sender)
    doubt = ended(record(), State.IN_DOUBT, Answer(504), int(time.time() * 1000), provisional=True)
    commands._take(doubt)
    (await sender.has(1))[1].set_result(ACCEPTED)
    noted = (await within(shard.changes.get(), "it is not noted that the operator knows")).record
    assert noted.told
    verdict = of_reply(reply_event(), noted, noted.changed_ms + 1)
    assert verdict.owes_answer
    commands._take(verdict)
    message, _ = await sender.has(2)
    assert message.properties["state"] == "SUCCEEDED"
    commands.close()


async def test_the_gateways_verdict_comes_while_the_provisional_one_is_on_its_way():
    commands, _ = dispatcher()
    sender = Sender()
    commands.listens("me", sender)
    doubt = ended(record(), State.IN_DOUBT, Answer(504), int(time.time() * 1000), provisional=True)
    commands._take(doubt)
    _, first = await sender.has(1)
    commands._take(of_reply(reply_event(), doubt, doubt.changed_ms + 1))
    first.set_result(ACCEPTED)
    message, second = await sender.has(2)
    assert message.properties["state"] == "SUCCEEDED"
    assert commands._registry.get("C1").state is State.SUCCEEDED
    second.set_result(ACCEPTED)
    commands.close()


async def test_news_of_a_command_that_are_overtaken_by_its_verdict_change_nothing():
    """The shard tells of a verdict before its commit: the DISPATCHED of the commit before may come to the loop after it."""
    commands, _ = dispatcher()
    sender = Sender()
    commands.listens("me", sender)
    verdict = of_reply(reply_event(), record(), int(time.time() * 1000))
    commands._learn(verdict)
    _, outcome = await sender.has(1)
    commands._take(record(state=State.DISPATCHED))
    assert commands._registry.get("C1").state is State.SUCCEEDED
    outcome.set_result(ACCEPTED)
    await asyncio.sleep(0)
    commands._learn(verdict)
    await asyncio.sleep(0)
    assert len(sender.sent) == 1
    assert commands._registry.get("C1").told
    commands.close()
