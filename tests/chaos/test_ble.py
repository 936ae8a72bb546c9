"""Bluetooth for long: two minutes of delivery (tests/edge/ble/test_delivery.py has the short form), and a daemon that hangs."""

import pytest

from edge.ble.delivery import ENOUGH, SETTINGS, deliver, judge
from edge.ble.world import THERMOMETER, World
from fogline_lab.amqp import within


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_delivery_for_two_minutes(tmp_path):
    with World(tmp_path, SETTINGS, devices=False) as world:
        world.run(world.start())
        course = world.run(deliver(world, 120, list(range(10, 120, 20))), 280)
        assert judge(world, course) >= ENOUGH


def test_a_daemon_that_hangs_holds_up_nothing(tmp_path):
    """It owns its name and answers nobody."""

    async def steps():
        world.bluez.hangs = True
        await world.start()
        await world.until_said("there is no Bluetooth adapter")
        world.bluez.hangs = False
        await world.until_event(THERMOMETER)
        await within(world.stop(), "the gateway does not end")

    with World(tmp_path, SETTINGS) as world:
        world.run(steps())
