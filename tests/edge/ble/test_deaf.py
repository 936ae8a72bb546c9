"""A radio that hears no advertisement, beside a link that is healthy (R3)."""

import asyncio
from itertools import count

import pytest

from fogline_lab.ble.adapter1 import Stuck
from fogline_lab.ble.air import bthome

from .world import ENV_1, THERMOMETER, World

SETTINGS = f"""\
[ble]
profiles = ["bthome"]
status_s = 0.2
silence_s = {{silence_s}}
[[ble.devices]]
device = "env-1"
address = "{ENV_1}"
profile = "meter.toml"
"""
METER = """\
name = "meter"
channel = "meter"
[[recognise]]
services = ["181a"]
[[notify]]
characteristic = "2a6e"
"""


PACKETS = count(1)


async def hear_for(world, seconds: float) -> None:
    """Values of an advertiser come for so long: it is near."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    while loop.time() < until_s:
        after = world.mark()
        world.broadcasters[THERMOMETER].say(bthome(next(PACKETS), next(PACKETS)))
        await world.until_event(THERMOMETER, after)


@pytest.mark.fault("R3")
@pytest.mark.parametrize(
    "silence_s", [pytest.param(2, id="a tenth of the time"), pytest.param(20, id="by default", marks=pytest.mark.slow)]
)
def test_a_deaf_radio_beside_a_link_that_lives_is_healed(tmp_path, silence_s):
    async def steps(world):
        loop = asyncio.get_running_loop()
        await world.until_event("env-1")
        await hear_for(world, silence_s)
        links, after, said = world.env[ENV_1].links, world.mark(), len(world.said)
        world.bluez.adapter.stuck = Stuck.ADAPTER
        world.broadcasters[THERMOMETER].say(bthome(next(PACKETS), 1234))
        began_s = loop.time()
        await world.until_event("env-1", after)
        await world.until_event(THERMOMETER, after)
        print(f"healed after {loop.time() - began_s:.0f} s")
        await world.bridge.until(lambda: world.env[ENV_1].links > links, "no new link")
        await world.until_event("env-1", world.mark())
        line = await world.until_said("switching the adapter off and on", said)
        assert "no advertisement was received" in line
        await world.until_said("scanning with hci0", world.said.index(line))
        assert world.state()["steps"]["power_cycle"] == 1

    (tmp_path / "meter.toml").write_text(METER)
    with World(tmp_path, SETTINGS.format(silence_s=silence_s)) as world:
        world.run(world.start())
        world.run(steps(world))
