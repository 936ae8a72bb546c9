"""Listed devices that cannot be connected to, while others advertise (R1). The settings are the defaults."""

import asyncio

import pytest

from fogline_lab.ble.air import bthome

from .world import ENV_1, ENV_2, HEALED_S, THERMOMETER, World

SETTINGS = f"""\
[ble]
profiles = ["bthome"]
status_s = 0.2
[[ble.devices]]
device = "env-1"
address = "{ENV_1}"
profile = "environmental-sensing"
"""
ENOUGH = 0.8
CHANGE_S = 0.5


async def share_that_comes(world, seconds: float) -> float:
    """Let a thermometer say something else every half second; the share of it that comes."""
    thermometer, changes = world.broadcasters[THERMOMETER], int(seconds / CHANGE_S)
    await world.until_event(THERMOMETER)
    after, loop = world.mark(), asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(1, changes + 1):
        thermometer.say(bthome(number, number))
        await asyncio.sleep(began_s + number * CHANGE_S - loop.time())
    thermometer.say(bthome(0, 32767))

    def came() -> set[int]:
        return {int.from_bytes(event.data[-2:], "little") for event in world.events(THERMOMETER, after)}

    await world.bridge.until(lambda: 32767 in came(), "the last value does not come")
    share = len(came() & set(range(1, changes + 1))) / changes
    print(f"delivered {share:.1%} of {changes} changes")
    return share


async def until_problem(world, words: str) -> None:
    """Until `fogline-edge status` says so of env-1."""

    async def wait():
        while words not in str(next(each["problem"] for each in world.state()["devices"] if each["device"] == "env-1")):  # noqa: ASYNC110 - a file gives no event
            await asyncio.sleep(0.05)

    try:
        await asyncio.wait_for(wait(), HEALED_S)
    except TimeoutError:
        raise AssertionError(f"{words!r} is not said: {world.state()} {world.said[-20:]}") from None


@pytest.mark.fault("R1")
def test_advertisements_arrive_beside_a_device_that_answers_no_request(tmp_path):
    async def steps(world):
        world.env[ENV_1].radio.numb = True
        await world.start()
        await asyncio.wait_for(world.env[ENV_1].until_linked(), HEALED_S)
        assert await share_that_comes(world, 10) >= ENOUGH
        line = await world.until_said("it is connected, but answers no request")
        assert "env-1" in line
        await until_problem(world, "it is connected, but answers no request")
        assert "TimeoutError" not in "".join(world.said)
        world.env[ENV_1].radio.numb = False
        await world.until_event("env-1")

    with World(tmp_path, SETTINGS) as world:
        world.run(steps(world))


@pytest.mark.slow
@pytest.mark.fault("R1")
def test_advertisements_arrive_beside_devices_that_accept_no_connection(tmp_path):
    """Two of them, for a minute and a half: both use up what they may."""

    async def steps(world):
        for each in world.env.values():
            each.radio.aloof = True
        await world.start()
        assert await share_that_comes(world, 90) >= ENOUGH
        await until_problem(world, "it advertises, but accepts no connection")
        for each in world.env.values():
            each.radio.aloof = False
        await world.until_event("env-1")

    with World(tmp_path, f'{SETTINGS}[[ble.devices]]\naddress = "{ENV_2}"\nprofile = "environmental-sensing"\n') as world:
        world.run(steps(world))
