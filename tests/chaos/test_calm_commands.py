"""Doubt is rare: without faults no command is in doubt."""

import pytest

from chaos.command_world import World
from fogline.commands.command import CommandState


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_of_10_000_commands_without_faults_none_is_in_doubt():
    """Half of them are durable. The device does each at once and answers. Each world has 100 commands."""
    ends = 0
    for _ in range(100):
        world = World()
        world.set_reachable(reachable=True)
        world.connect()
        for number in range(1, 101):
            command_id = world.ask(number, durable=number % 2 == 0, ttl_ms=600_000)
            while not (record := world.truth.get(command_id)) or not record.final:
                world.step_all()
                world.adapter("reach")
                world.answer(again=False)
            assert record.state is CommandState.SUCCEEDED
            assert world.effects[command_id] == 1
            ends += 1
    print(f"{ends} commands without faults: all SUCCEEDED, 0 IN_DOUBT")
