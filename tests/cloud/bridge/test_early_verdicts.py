"""An operator gets the verdict of a gateway's journal before Kafka has it, unless the shard might decide in another way."""

from types import SimpleNamespace

import msgspec
import pytest

from cloud.shard.reply_batches import replies
from fogline.commands.command import CommandState
from fogline.process.kernel_clock import wall_clock_ms
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.early_verdicts import EarlyVerdicts
from fogline_cloud.commands.command_life import CommandLife
from fogline_cloud.commands.record import KAFKA_OWNER
from fogline_lab.bridge.command_records import make_record
from fogline_lab.bridge.command_side import CommandSide, OneShard

TENANT = SimpleNamespace(tenant="acme")
DONE = {"commandid": "C1", "device": "lamp-1"}


def asked(**other):
    return make_record(expires_ms=wall_clock_ms() + 60_000, **other)


def end(table: CommandTable) -> None:
    """Have the bridge write a verdict of its own."""
    table.on(asked(), CommandLife.overdue, 1.0, 10.0)


def cancel(table: CommandTable) -> None:
    table.on(asked(), CommandLife.learned, asked(state=CommandState.CANCELLING))


def learn_from(batch, *, before=lambda _: None, may_speak_for=lambda _gateway, _device: True, **attributes) -> CommandState:
    """The state of C1 at a bridge that gets this batch, and whose shard commits nothing."""
    shard = OneShard()
    shard.ready = True
    commands = CommandSide(shard)
    commands.learn(asked(**attributes))
    before(commands.table)
    EarlyVerdicts(commands.table, "acme", may_speak_for).received(*batch)
    known = commands.table.registry.get("C1")
    commands.close()
    assert commands.table.registry.get("C2") is None
    return known.state


async def test_the_gateways_verdict_is_known_before_a_commit():
    assert learn_from(replies(TENANT, DONE)) is CommandState.SUCCEEDED
    assert learn_from(replies(TENANT, {**DONE, "commandstate": "IN_DOUBT", "status": 504})) is CommandState.IN_DOUBT
    assert learn_from(replies(TENANT, {**DONE, "commandid": "C2"}, DONE)) is CommandState.SUCCEEDED


@pytest.mark.parametrize("reply", [{"device": "lamp-9"}, {"tenant": "other"}, {"commandstate": "PAUSED"}, {"status": 7}])
async def test_reply_that_the_shard_refuses_changes_nothing(reply):
    assert learn_from(replies(TENANT, {**DONE, **reply})) is CommandState.ACCEPTED


async def test_another_gateway_or_one_that_lost_its_device_changes_nothing():
    assert learn_from(replies(TENANT, DONE, gateway="gw-2")) is CommandState.ACCEPTED
    assert learn_from(replies(TENANT, DONE), may_speak_for=lambda *_: False) is CommandState.ACCEPTED


@pytest.mark.parametrize("body", [b"", b"no zstd"])
async def test_a_batch_that_cannot_be_read_is_left_to_the_shard(body):
    span, message = replies(TENANT, DONE)
    assert learn_from((span, msgspec.structs.replace(message, body=body))) is CommandState.ACCEPTED


@pytest.mark.parametrize(("before", "state"), [(end, CommandState.ACCEPTED), (cancel, CommandState.CANCELLING)])
async def test_a_command_that_somebody_else_may_be_ending_is_left_to_the_shard(before, state):
    assert learn_from(replies(TENANT, DONE), before=before) is state


async def test_the_response_of_a_command_over_kafka_waits_for_kafka():
    assert learn_from(replies(TENANT, DONE), reply_owner=KAFKA_OWNER) is CommandState.ACCEPTED
