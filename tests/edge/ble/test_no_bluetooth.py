"""A gateway without Bluetooth: it says so in one line, the other adapters run, and it looks again."""

import socket

import pytest

from .world import THERMOMETER, World

SETTINGS = '[ble]\nprofiles = ["bthome"]\npower_on_s = 0.2\n[mqtt]\nport = 0\n'


@pytest.fixture
def world(tmp_path):
    with World(tmp_path, SETTINGS) as world:
        yield world


def bluetooth(world) -> list[str]:
    return [each for each in world.said if "Bluetooth" in each]


def test_nothing_there_is_one_line_and_it_is_looked_for_again(world):
    async def steps():
        await world.bluez.stop()
        await world.bus.stop()
        await world.start()
        line = await world.until_said("the system bus cannot be reached")
        assert "its socket is not there" in line
        assert "install and start dbus and bluez" in line
        assert "Traceback" not in "".join(world.said)
        assert len(bluetooth(world)) == 1
        address, _, port = world.ready["mqtt"].rpartition(":")
        socket.create_connection((address, int(port)), 5).close()

        await world.bus.start()
        await world.until_said("bluetoothd does not run")
        await world.bluez.start()
        await world.until_event(THERMOMETER)
        assert world.alive

    world.run(steps())


def test_no_adapter_is_one_line_and_one_that_is_plugged_in_is_used(world):
    async def steps():
        await world.bluez.unplug()
        await world.start()
        await world.until_said("there is no Bluetooth adapter; plug one in")
        assert len(bluetooth(world)) == 1
        world.bluez.plug(powered=False)
        await world.until_event(THERMOMETER)

    world.run(steps())
