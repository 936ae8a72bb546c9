"""Restarts that are no trouble of anybody's: what the log says of them (R4). In order: one gateway's life."""

import pytest

from edge.ble.supervisor_steps import until_step

from .world import ENV_1, World

SETTINGS = f"""\
[ble]
profiles = ["bthome"]
status_s = 0.2
longest_retry_s = 1
[[ble.devices]]
device = "env-1"
address = "{ENV_1}"
profile = "environmental-sensing"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("restarts"), SETTINGS) as world:
        world.run(world.start())
        yield world


def warnings(world, after: int) -> list[str]:
    of_device = "there is no characteristic"  # that the simulated device lacks, whenever it is linked
    return [each for each in world.said[after:] if (" WARNING " in each or " ERROR " in each) and of_device not in each]


def test_an_ordinary_restart_of_bluetoothd_is_no_warning(world):
    """R4. bluetoothd has its name before it has an adapter."""

    async def steps():
        await world.until_event("env-1")
        said, links = len(world.said), world.env[ENV_1].links
        await world.bluez.unplug()
        await world.bluez.stop()
        await world.bluez.start()
        world.bluez.plug()
        await world.bridge.until(lambda: world.env[ENV_1].links > links, "no new link")  # so it scans
        assert warnings(world, said) == [], world.said

    world.run(steps())


def test_adapter_blocked_by_rfkill_is_named_with_the_remedy(world):
    """R4."""

    async def steps():
        said, after = len(world.said), world.mark()
        await world.bluez.adapter.block(blocked=True)
        line = await world.until_said("rfkill unblock bluetooth", said)
        assert "hci0 is blocked by rfkill" in line
        await until_step(world, "power_on", 0)
        assert len(warnings(world, said)) == 1, world.said[said:]
        await world.bluez.adapter.block(blocked=False)
        await world.until_event("env-1", after)
        await world.until_said("scanning with hci0", world.said.index(line))

    world.run(steps())


def test_after_a_restart_of_the_bus_the_gateway_ends_without_a_word(world):
    """R4: futures that nobody awaits are told of at the end of the process."""

    async def steps():
        links, after = world.env[ENV_1].links, world.mark()
        await world.bus.stop()
        await world.bluez.stop()
        await world.bus.start()
        await world.bluez.start()
        await world.bridge.until(lambda: world.env[ENV_1].links > links, "no new link")
        await world.until_event("env-1", after)
        await world.stop()
        await world.drained
        text = "\n".join(world.said)
        assert "never retrieved" not in text
        assert "Traceback" not in text

    world.run(steps())
