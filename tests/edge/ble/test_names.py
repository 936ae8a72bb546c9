"""Listed devices that are named by what they say of themselves: commands reach them by that name, and no two have it."""

import pytest

from .world import ENV_1, ENV_2, World

PROFILE = """\
name = "named"
channel = "named"
device = "{name}"
[[recognise]]
services = ["181a"]
[[read]]
characteristic = "2a6e"
[[commands]]
name = "write"
characteristic = "6e400002-0000-4000-8000-00805f9b0001"
"""
SETTINGS = f"""\
[ble]
status_s = 0.2
[[ble.devices]]
address = "{ENV_1}"
profile = "named.toml"
[[ble.devices]]
address = "{ENV_2}"
profile = "named.toml"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    (folder / "named.toml").write_text(PROFILE)
    with World(folder, SETTINGS) as world:
        world.env[ENV_2].name = world.env[ENV_1].name = "twin"
        for each in world.env.values():
            world.run(each.advertise())
        world.run(world.start())
        yield world


def test_of_two_devices_with_one_name_one_is_connected_to_and_commanded_by_it(world):
    async def steps():
        reply = await world.command("twin", "write", b"on")
        assert reply.commandstate == "SUCCEEDED"
        line = await world.until_said("is ignored: its name twin is that of")
        (refused,) = [address for address, each in world.env.items() if not each.linked]
        assert f"Bluetooth: {refused} is ignored" in line
        assert {event.device for _, event in world.bridge.came if event.type != "ledger"} == {"twin"}
        assert world.env[refused].links == 0

    world.run(steps())
