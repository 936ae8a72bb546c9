"""Devices that say little by their profile keep their links, however soon another one would be taken for gone."""

import asyncio

import pytest

from .world import ENV_1, ENV_2, HEALED_S, World

HEAD = 'channel = "quiet"\n[[recognise]]\nservices = ["181a"]\n'
METER = f'name = "meter"\n{HEAD}[[read]]\ncharacteristic = "2a6e"\ninterval_s = 3\n'
LOCK = f'name = "lock"\n{HEAD}[[commands]]\nname = "open"\ncharacteristic = "6e400002-0000-4000-8000-00805f9b0001"\n'
SETTINGS = f"""\
[ble]
status_s = 0.2
device_silence_s = 1
[[ble.devices]]
device = "env-1"
address = "{ENV_1}"
profile = "meter.toml"
[[ble.devices]]
device = "env-2"
address = "{ENV_2}"
profile = "lock.toml"
"""
LONG_S = 4.0
LONELY = f"""\
[ble]
silence_s = 1
status_s = {{status_s}}
device_silence_s = {{device_silence_s}}
[[ble.devices]]
device = "env-2"
address = "{ENV_2}"
profile = "lock.toml"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quiet")
    (folder / "meter.toml").write_text(METER)
    (folder / "lock.toml").write_text(LOCK)
    with World(folder, SETTINGS) as world:
        world.run(world.start())
        yield world


def test_a_device_that_is_only_commanded_or_seldom_read_keeps_its_link(world):
    async def quiet():
        """Until the one that is only commanded was quiet for long."""
        while not any(each["link"] == "up" and (each["heard_s"] or 0) > LONG_S for each in world.state()["devices"]):  # noqa: ASYNC110 - a file gives no event
            await asyncio.sleep(0.05)

    async def linked():
        while not all(each["link"] == "up" for each in world.state()["devices"]):  # noqa: ASYNC110 - a file gives no event
            await asyncio.sleep(0.05)

    async def steps():
        await world.until_event("env-1")
        await asyncio.wait_for(linked(), HEALED_S)
        silent = world.state()["counters"]["silent"]  # a slow machine takes longer than a second for a link
        await asyncio.wait_for(quiet(), HEALED_S)
        assert {address: each.links for address, each in world.env.items()} == {ENV_1: 1, ENV_2: 1}
        assert world.state()["counters"]["silent"] == silent
        assert (await world.command("env-2", "open", b"x")).commandstate == "SUCCEEDED"

    world.run(steps())


@pytest.mark.parametrize(
    ("status_s", "device_silence_s"), [(0.2, 1), (600, 600)], ids=["for as long as it is up", "as soon as it is up"]
)
def test_silent_link_stays_open_without_advertisements(tmp_path, status_s, device_silence_s):
    """The scanner is taken for dead again and again; the link and the adapter are left alone."""

    async def steps(world):
        await world.until_said("connected to env-2")
        world.bluez.adapter.deaf = True
        before = world.state()["steps"]["new_scanner"]
        async with asyncio.timeout(HEALED_S):
            while world.state()["steps"]["new_scanner"] < before + 3:  # noqa: ASYNC110 - a file gives no event
                await asyncio.sleep(0.05)
        taken = world.state()["steps"]
        assert (taken["new_clients"], taken["power_cycle"], world.env[ENV_2].links) == (0, 0, 1)

    (tmp_path / "lock.toml").write_text(LOCK)
    with World(tmp_path, LONELY.format(status_s=status_s, device_silence_s=device_silence_s)) as world:
        world.run(world.start())
        world.run(steps(world))
