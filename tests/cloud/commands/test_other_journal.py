"""What a bridge concludes from the journal of a gateway: only the one that a command was sent to can deny that it has it."""

import pytest

from chaos.command_world import World
from chaos.gateway_copies import back_up, empty_card, expire_memory, restore, ten_days
from fogline.amqp.outcome import DeliveryState
from fogline.commands.command import CommandState, Status

REPLACED = pytest.mark.parametrize("replace", [restore, empty_card], ids=["restored", "new card"])


def world_of(*, durable, reachable=True, **more):
    world = World()
    world.set_reachable(reachable=reachable)
    world.connect()
    back_up(world)
    command_id = world.ask(1, durable=durable, ttl_ms=600_000, **more)
    return world, command_id


def verdict(world, command_id):
    record = world.truth.get(command_id)
    assert record.final
    return record.state


def send(world):
    """The command is on the line to the gateway."""
    while world.bridge.changes:
        world.loop.call(world.bridge.commit)


@pytest.mark.fault("X9")
@REPLACED
@pytest.mark.parametrize("idempotent", [False, True], ids=["not idempotent", "idempotent"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "direct"])
def test_a_command_that_the_former_gateway_may_have_run_is_in_doubt_and_not_sent_again(replace, idempotent, durable):
    """It ran, and its outcome was lost with the connection."""
    world, command_id = world_of(durable=durable, properties={"idempotent": idempotent})
    send(world)
    world.deliver()
    world.loop.call(world.gateway.commit)
    world.disconnect()
    world.loop.call(world.gateway.notify)
    world.adapter("reach")
    assert world.effects[command_id] == 1
    replace(world)
    world.connect()
    world.settle_down()
    assert verdict(world, command_id) is CommandState.IN_DOUBT
    assert world.effects[command_id] == 1
    assert world.heard[command_id].properties["state"] == "IN_DOUBT"
    released = [each for each, outcome in world.settled if outcome.state is DeliveryState.RELEASED]
    assert not released


@pytest.mark.fault("X9")
@REPLACED
def test_a_command_that_the_former_gateway_accepted_is_in_doubt_as_soon_as_the_new_one_connects(replace):
    world, command_id = world_of(durable=True, reachable=False)
    steps(world)
    assert world.truth.get(command_id).state is CommandState.DISPATCHED
    replace(world)
    world.connect()
    steps(world)
    assert verdict(world, command_id) is CommandState.IN_DOUBT


@pytest.mark.fault("X9")
@REPLACED
def test_a_command_that_is_to_be_cancelled_is_not_cancelled_by_another_journal(replace):
    world, command_id = world_of(durable=True)
    send(world)
    world.deliver()
    world.loop.call(world.gateway.commit)
    world.disconnect()
    world.loop.call(world.gateway.notify)
    world.adapter("reach")
    world.cancel(command_id)
    replace(world)
    world.connect()
    world.settle_down()
    assert verdict(world, command_id) is CommandState.IN_DOUBT


@REPLACED
def test_a_command_that_was_never_sent_goes_to_the_new_gateway(replace):
    world, _ = world_of(durable=True)
    world.disconnect()
    other = world.ask(2, durable=True, ttl_ms=600_000)
    replace(world)
    world.connect()
    for _ in range(4):
        world.step_all()
        world.adapter("reach")
        world.answer(again=False)
    world.settle_down()
    assert verdict(world, other) is CommandState.SUCCEEDED


def test_the_verdict_of_a_restored_journal_that_has_the_command_counts():
    """The backup was taken while the command was under way."""
    world, command_id = world_of(durable=True)
    steps(world)
    world.adapter("reach")
    back_up(world)
    restore(world)
    world.connect()
    steps(world)
    world.answer(again=False)
    world.settle_down()
    assert verdict(world, command_id) is CommandState.SUCCEEDED


@pytest.mark.fault("X10")
def test_a_verdict_that_waited_ten_days_at_the_gateway_is_the_verdict():
    world, command_id = world_of(durable=True)
    steps(world)
    world.disconnect()
    world.adapter("reach")
    world.answer(again=False)
    world.loop.call(world.gateway.commit)
    world.loop.call(world.gateway.notify)
    ten_days(world)
    world.connect()
    for _ in range(3):  # what the bridge asks is answered before the reply comes
        world.deliver()
        world.loop.call(world.gateway.commit)
        world.loop.call(world.gateway.notify)
        send(world)
    world.settle_down()
    assert verdict(world, command_id) is CommandState.SUCCEEDED
    expire_memory(world)
    assert world.journal_state(command_id) is None, "it is forgotten once its reply is settled"


@pytest.mark.fault("X10")
def test_a_command_that_is_older_than_the_memory_and_not_in_it_is_in_doubt():
    world, command_id = world_of(durable=True)
    send(world)
    world.disconnect()  # with the command on its way
    ten_days(world)
    world.connect()
    world.settle_down()
    assert verdict(world, command_id) is CommandState.IN_DOUBT


def test_a_command_that_did_not_reach_its_gateway_before_it_expired_is_expired():
    world, command_id = world_of(durable=True)
    send(world)
    world.disconnect()
    world.loop.advance(3600)
    world.connect()
    world.settle_down()
    record = world.truth.get(command_id)
    assert (record.state, record.status) == (CommandState.EXPIRED, Status.EXPIRED)


def test_a_command_that_no_bridge_has_sent_is_expired_also_after_a_takeover():
    """Its record names no journal. Nobody has to ask the gateway, which may be away for ever."""
    world = World()
    command_id = world.ask(1, durable=True, ttl_ms=5_000)
    send(world)
    world.bridge_dies(zombie=False)
    world.loop.advance(6.0)
    send(world)
    assert verdict(world, command_id) is CommandState.EXPIRED


def steps(world):
    for _ in range(4):
        world.step_all()
