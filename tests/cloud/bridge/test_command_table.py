"""The table of commands: the verdict on an expired command is written as soon as there is a shard, however late."""

import time

import pytest

from fogline.commands.command import CommandState
from fogline_cloud.commands import command_life
from fogline_cloud.commands.succession import keep_verdict
from fogline_lab.amqp import within
from fogline_lab.bridge.command_records import make_record
from fogline_lab.bridge.command_side import CommandSide, OneShard


@pytest.mark.fault("S3")
async def test_a_record_from_another_gateways_shard_changes_no_command():
    """B2: the shard of a forging gateway does not know the command, but the bridge does."""
    commands = CommandSide(OneShard())
    asked = make_record(expires_ms=int(time.time() * 1000) + 60_000)
    commands.learn(asked)
    foreign = make_record(gateway="gw-2", state=CommandState.SUCCEEDED, status=200, digest="", operator="", reply_to="")
    commands.learn(foreign)
    assert commands.table.registry.get("C1") == asked
    commands.close()


async def test_a_command_that_expires_while_kafka_is_away_is_ended_when_it_is_back(monkeypatch):
    monkeypatch.setattr(command_life, "RETRY_S", 0.01)
    shard = OneShard()
    commands = CommandSide(shard)
    commands.learn(make_record(expires_ms=int(time.time() * 1000)))
    await within(shard.asked.wait(), "the verdict is never tried to be written")
    assert shard.changes.empty()
    shard.ready = True
    change = await within(shard.changes.get(), "the verdict is never written")
    assert change.record.state is CommandState.EXPIRED
    commands.learn(change.record)
    assert not commands.table.open
    commands.close()


async def test_a_reply_to_an_attempt_of_a_former_bridge_waits_until_the_gateway_has_confirmed_the_copy():
    """The operator's copy came to a bridge that had not read the reply: its verdict goes with the copy's request."""
    commands = CommandSide(OneShard())
    asked = make_record(expires_ms=int(time.time() * 1000) + 60_000)
    commands.learn(asked)
    reply = make_record(state=CommandState.SUCCEEDED, status=200, digest="", operator="", reply_to="")
    commands.learn(reply)
    assert commands.table.registry.get("C1") == asked
    for unconfirmed in (asked, make_record(state=CommandState.REJECTED), make_record(digest="", state=CommandState.DISPATCHED)):
        assert keep_verdict(reply, unconfirmed) == unconfirmed
    confirmed = keep_verdict(reply, make_record(state=CommandState.DISPATCHED))
    assert (confirmed.state, confirmed.status, confirmed.reply_to, confirmed.owes_reply) == (
        CommandState.SUCCEEDED,
        200,
        "me",
        True,
    )
    commands.learn(confirmed)
    assert not commands.table.open
    commands.close()
