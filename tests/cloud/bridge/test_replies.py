"""A reply is sent until its operator has accepted it, as long as there is a link for it (B6)."""

import asyncio
import time
from types import SimpleNamespace

import msgspec
import pytest

from fogline.amqp import wire
from fogline.amqp.outcome import ACCEPTED, MODIFIED, RELEASED, UNKNOWN, rejected
from fogline.commands.command import CommandState, Reply
from fogline.errors import Poison, Unreachable
from fogline_cloud.bridge.commands import replies as module
from fogline_cloud.bridge.commands.replies import MAX_IN_FLIGHT, ReplySender
from fogline_cloud.commands.record import apply_reply, ended
from fogline_lab.amqp import within
from fogline_lab.bridge.command_records import make_ended_record, make_record, make_reply_event
from fogline_lab.bridge.command_side import ready_command_side


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(module, "MAX_RETRY_S", 0.01)


class Sender:
    """An operator's link. `sent`: the replies sent over it, each with the future of its outcome."""

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
        """Lose the connection, with the outcome of everything in flight."""
        self.closed = True
        for _, future in self.sent:
            if not future.done():
                future.set_exception(Unreachable("it is lost"))


class Delivered:
    def __init__(self):
        self.records = []
        self.came = asyncio.Event()

    def __call__(self, record):
        self.records.append(record)
        self.came.set()


@pytest.fixture
def delivered():
    return Delivered()


@pytest.mark.fault("X5")
async def test_a_reply_in_flight_on_a_half_open_link_is_sent_over_the_new_one(delivered):
    """B6: the operator is back before the bridge knows that its former connection is lost."""
    replies, half_open, new = ReplySender(delivered), Sender(), Sender()
    replies.add_link(("", "me"), half_open, [make_ended_record(CommandState.SUCCEEDED)])
    await half_open.has(1)
    replies.add_link(("", "me"), new, [make_ended_record(CommandState.SUCCEEDED)])
    assert new.sent == []
    half_open.end()
    replies.remove_link(half_open.link)
    _, outcome = await new.has(1)
    outcome.set_result(ACCEPTED)
    await within(delivered.came.wait(), "the delivery is not reported")
    assert [each.id for each in delivered.records] == ["C1"]


@pytest.mark.parametrize("outcome", [RELEASED, MODIFIED, UNKNOWN, rejected("amqp:internal-error", "no")], ids=str)
async def test_a_reply_that_is_not_accepted_is_sent_again_over_the_same_link(delivered, outcome):
    """B6."""
    replies, sender = ReplySender(delivered), Sender()
    replies.add_link(("", "me"), sender, [make_ended_record(CommandState.SUCCEEDED)])
    for count in (1, 2):
        (await sender.has(count))[1].set_result(outcome)
    (await sender.has(3))[1].set_result(ACCEPTED)
    await within(delivered.came.wait(), "the delivery is not reported")
    assert len(sender.sent) == 3


async def test_the_older_of_two_links_gets_the_answers_when_the_newer_one_ends(delivered):
    replies, older, newer = ReplySender(delivered), Sender(), Sender()
    replies.add_link(("", "me"), older, [])
    replies.add_link(("", "me"), newer, [make_ended_record(CommandState.SUCCEEDED)])
    await newer.has(1)
    newer.end()
    replies.remove_link(newer.link)
    await older.has(1)


async def test_pauses_between_attempts_grow_and_end_with_a_new_link(delivered, monkeypatch):
    monkeypatch.setattr(module, "FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(module, "MAX_RETRY_S", 7200.0)
    assert [module.retry_s(failures) for failures in (1, 2, 3, 100_000)] == [3600, 7200, 7200, 7200]
    replies, refusing, new = ReplySender(delivered), Sender(), Sender()
    replies.add_link(("", "me"), refusing, [make_ended_record(CommandState.SUCCEEDED)])
    (await refusing.has(1))[1].set_result(RELEASED)
    await asyncio.sleep(0)
    replies.send(make_ended_record(CommandState.SUCCEEDED))
    assert len(refusing.sent) == 1
    replies.add_link(("", "me"), new, [make_ended_record(CommandState.SUCCEEDED)])
    await new.has(1)


async def test_operator_that_settles_nothing_has_few_replies_in_flight_and_stops_no_other(delivered):
    """Isolation: one operator never settles its answers, another one takes its own."""
    replies, greedy, honest = ReplySender(delivered), Sender(), Sender()
    replies.add_link(("", "greedy"), greedy, [])
    replies.add_link(("", "me"), honest, [])
    for number in range(1000):
        replies.send(msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), id=f"G{number}", reply_to="greedy"))
    replies.send(make_ended_record(CommandState.SUCCEEDED))
    (await honest.has(1))[1].set_result(ACCEPTED)
    await within(delivered.came.wait(), "the honest operator waits")
    assert [each.id for each in delivered.records] == ["C1"]
    assert len(greedy.sent) == MAX_IN_FLIGHT
    greedy.sent[0][1].set_result(ACCEPTED)
    await greedy.has(MAX_IN_FLIGHT + 1)


async def test_a_newer_verdict_does_not_wait_for_the_pause_of_the_former_one(delivered, monkeypatch):
    monkeypatch.setattr(module, "FIRST_RETRY_S", 3600.0)
    monkeypatch.setattr(module, "MAX_RETRY_S", 3600.0)
    replies, sender = ReplySender(delivered), Sender()
    replies.add_link(("", "me"), sender, [make_ended_record(CommandState.IN_DOUBT, provisional=True)])
    (await sender.has(1))[1].set_result(RELEASED)
    await asyncio.sleep(0)
    replies.send(make_ended_record(CommandState.SUCCEEDED))
    message, _ = await sender.has(2)
    assert message.properties["state"] == "SUCCEEDED"


class EncodingSender(Sender):
    """Encodes as a real link does."""

    def send(self, message):
        wire.encode(message)
        return super().send(message)


@pytest.mark.parametrize("wrong", [{"status": 2**40}, {"correlation": "garbage"}], ids=str)
async def test_a_reply_that_amqp_cannot_encode_stops_no_other(delivered, wrong, caplog):
    """Isolation: a gateway that says nonsense of one command does not keep an operator from its other answers."""
    replies, sender = ReplySender(delivered), EncodingSender()
    good = msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), id="C2")
    replies.add_link(("", "me"), sender, [msgspec.structs.replace(make_ended_record(CommandState.SUCCEEDED), **wrong), good])
    message, _ = await sender.has(1)
    assert message.properties["command_id"] == "C2"
    assert "the reply to command C1 cannot be sent" in caplog.text


@pytest.mark.parametrize("status", [-1, 0, 199, 600, 2**40])
def test_a_reply_with_an_invalid_status_ends_no_command(status):
    with pytest.raises(Poison):
        apply_reply(make_reply_event(status=status), make_record(), 77)


async def test_the_gateways_verdict_is_sent_though_the_provisional_one_was_accepted():
    commands, shard = ready_command_side()
    sender = Sender()
    commands.table.add_reply_link(("", "me"), sender)
    doubt = ended(make_record(), CommandState.IN_DOUBT, Reply(504), int(time.time() * 1000), provisional=True)
    commands.learn(doubt)
    (await sender.has(1))[1].set_result(ACCEPTED)
    noted = (await within(shard.changes.get(), "the delivery is not recorded")).record
    assert noted.reply_delivered
    verdict = apply_reply(make_reply_event(), noted, noted.changed_ms + 1)
    assert verdict.owes_reply
    commands.learn(verdict)
    message, _ = await sender.has(2)
    assert message.properties["state"] == "SUCCEEDED"
    commands.close()


async def test_the_gateways_verdict_comes_while_the_provisional_one_is_in_flight():
    commands, _ = ready_command_side()
    sender = Sender()
    commands.table.add_reply_link(("", "me"), sender)
    doubt = ended(make_record(), CommandState.IN_DOUBT, Reply(504), int(time.time() * 1000), provisional=True)
    commands.learn(doubt)
    _, first = await sender.has(1)
    commands.learn(apply_reply(make_reply_event(), doubt, doubt.changed_ms + 1))
    first.set_result(ACCEPTED)
    message, second = await sender.has(2)
    assert message.properties["state"] == "SUCCEEDED"
    assert commands.table.registry.get("C1").state is CommandState.SUCCEEDED
    second.set_result(ACCEPTED)
    commands.close()


async def test_a_record_that_its_verdict_overtook_changes_nothing():
    """The shard reports a verdict before its commit, so the DISPATCHED of the commit before may reach the loop after it."""
    commands, _ = ready_command_side()
    sender = Sender()
    commands.table.add_reply_link(("", "me"), sender)
    verdict = apply_reply(make_reply_event(), make_record(), int(time.time() * 1000))
    commands.learn(verdict)
    _, outcome = await sender.has(1)
    commands.learn(make_record(state=CommandState.DISPATCHED))
    assert commands.table.registry.get("C1").state is CommandState.SUCCEEDED
    outcome.set_result(ACCEPTED)
    await asyncio.sleep(0)
    commands.learn(verdict)
    await asyncio.sleep(0)
    assert len(sender.sent) == 1
    assert commands.table.registry.get("C1").reply_delivered
    commands.close()
