"""Failures of BlueZ, against a gateway that is not restarted. The tests follow one run of a gateway, in order.

A fault is healed when a value that changed after it arrives, and both links are up again.
"""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest

from edge.ble.supervisor_steps import until_state, until_step
from fogline_lab.ble.adapter1 import Stuck
from fogline_lab.ble.air import bthome

from .world import ENV_1, ENV_2, HEALED_S, THERMOMETER

PACKETS = count(1)


def healed(world):
    """A context in which something is broken: what is said on the air after it must come, and links must be new ones."""

    @asynccontextmanager
    async def context(*, links: bool = True):
        await settled(world)
        before = {address: each.links for address, each in world.env.items()}
        yield
        async with asyncio.timeout(HEALED_S):
            await heard_again(world)
            if links:
                await world.bridge.until(
                    lambda: all(each.links > before[address] and each.linked for address, each in world.env.items()),
                    "the links do not come again",
                )
                await settled(world)
        assert world.alive

    return context


async def heard_again(world) -> None:
    """A change on the air comes."""
    after = world.mark()
    world.broadcasters[THERMOMETER].say(bthome(next(PACKETS), 2000 + next(PACKETS)))
    await world.until_event(THERMOMETER, after)


async def settled(world) -> None:
    """Both devices say something over their links."""
    after = world.mark()
    for device in ("env-1", "env-2"):
        await world.until_event(device, after)


def steps_of(world, name: str) -> int:
    return world.state()["steps"][name]


async def power(world):
    await world.bluez.adapter.power(on=False)
    await world.bluez.adapter.power(on=True)


async def power_by_the_gateway(world):
    """Somebody switches it off; the gateway switches it on."""
    await world.bluez.adapter.power(on=False)


async def kill_daemon(world):
    """It dies without a word: no callback, `is_connected` stays true, the scanner is dead."""
    await world.bluez.stop(killed=True)
    await world.bluez.start()


async def end_daemon(world):
    await world.bluez.stop()
    await world.bluez.start()


async def kill_daemon_that_comes_back_off(world):
    await world.bluez.stop(killed=True)
    await world.bluez.start(powered=False)


async def restart_bus(world):
    await world.bus.stop()
    await world.bluez.stop()
    await world.bus.start()
    await world.bluez.start()


async def unplug(world):
    await world.bluez.unplug()
    world.bluez.plug()


@pytest.mark.parametrize(
    ("fault", "counted"),
    [
        (power, "powered_off"),
        (power_by_the_gateway, "power_on"),
        (kill_daemon, "daemon_lost"),
        (end_daemon, "daemon_lost"),
        (kill_daemon_that_comes_back_off, "power_on"),
        (restart_bus, "bus_lost"),
        (unplug, "adapter_lost"),
    ],
)
def test_it_heals_by_itself(world, fault, counted):
    async def steps():
        async with healed(world)():
            before = steps_of(world, counted)
            await fault(world)
            await until_step(world, counted, before)

    world.run(steps())


def test_a_daemon_that_is_away_for_long_is_waited_for(world):
    async def steps():
        async with healed(world)():
            said = len(world.said)
            await world.bluez.stop(killed=True)
            line = await world.until_said("bluetoothd does not run", said)
            assert "trying again" in line
            await until_state(world, lambda state: state["phase"] == "no daemon", "it is not said")
            await world.bluez.start()

    world.run(steps())


def test_an_adapter_that_is_out_for_long_is_named_with_its_times(world):
    async def steps():
        async with healed(world)():
            said = len(world.said)
            await world.bluez.unplug()
            line = await world.until_said("there is no Bluetooth adapter; plug one in", said)
            assert "trying again" in line
            await until_state(world, lambda state: state["outage"] is not None, "status does not name the outage")
            since = world.state()["outage"]["since"]
            assert f"problem since {since}: there is no Bluetooth adapter" in world.shown()
            world.bluez.plug()
        await until_state(world, lambda state: state["outage"] is None, "status does not know that it is over")
        last = world.state()["earlier"][-1]
        assert last["since"] == since
        assert "there is no Bluetooth adapter" in last["problem"]
        assert 5 <= last["lasted_s"] < HEALED_S
        assert f"no scan from {since} on for {last['lasted_s']:,.0f} s: there is no" in world.shown()
        await world.until_said("scanning with hci0, after ", said)

    world.run(steps())


def test_a_gateway_killed_while_linked_finds_its_devices(world):
    """BlueZ keeps the links, and such a device is not found."""

    async def steps():
        async with healed(world)():
            await world.kill()
            assert all(each.linked for each in world.env.values())
            await world.start()
        assert world.state()["counters"]["stale_links"] == 2
        assert "there is no Bluetooth adapter" in world.state()["earlier"][-1]["problem"], "outages outlive a restart"

    world.run(steps())


def test_a_command_that_is_under_way_when_the_gateway_is_killed_is_in_doubt_and_not_repeated(world):
    async def steps():
        async with healed(world)():
            reply = asyncio.create_task(world.command("env-1", "tell", b"nothing", ttl_s=5))
            await world.env[ENV_1].gatt.until_written(b"nothing")
            await world.kill()
            await world.start()
        assert (await reply).commandstate == "IN_DOUBT"
        assert world.env[ENV_1].gatt.writes.count(b"nothing") == 1

    world.run(steps())


@pytest.mark.parametrize(
    ("member", "error", "times"), [("StartNotify", "InProgress", 3), ("Connect", "InProgress", 2), ("ReadValue", "Failed", 3)]
)
def test_request_is_repeated_while_bluez_is_busy(world, member, error, times):
    async def steps():
        async with healed(world)():
            world.bluez.fail(member, error, times=times)
            await world.bluez.links.drop_all()

    world.run(steps())


def test_a_scanner_that_is_in_progress_is_asked_for_again(world):
    async def steps():
        async with healed(world)():
            before = steps_of(world, "start_failures")
            world.bluez.fail("StartDiscovery", "InProgress", "Operation already in progress", times=2)
            await power(world)
            await until_step(world, "start_failures", before + 1)

    world.run(steps())


def test_against_a_scanner_that_hears_nothing_there_is_a_new_one(world):
    async def steps():
        async with healed(world)(links=False):
            before = steps_of(world, "new_scanner")
            world.bluez.adapter.stuck = Stuck.SCANNER
            await until_step(world, "new_scanner", before)

    world.run(steps())


def test_while_links_live_they_are_not_ended_for_a_silent_scanner(world):
    async def steps():
        before = {name: steps_of(world, name) for name in ("new_clients", "power_cycle", "new_scanner")}
        links = {address: each.links for address, each in world.env.items()}
        world.bluez.adapter.deaf = True
        await until_step(world, "new_scanner", before["new_scanner"] + 1)
        world.bluez.adapter.deaf = False
        await heard_again(world)
        assert {name: steps_of(world, name) for name in ("new_clients", "power_cycle")} == {
            name: before[name] for name in ("new_clients", "power_cycle")
        }
        assert links == {address: each.links for address, each in world.env.items()}

    world.run(steps())


def test_gaps_in_bluez_signals_lose_no_lasting_state(world):
    async def steps():
        after = world.mark()
        world.bluez.adapter.deaf = True
        world.broadcasters[THERMOMETER].say(bthome(200, 1111))
        before = world.bluez.adapter.swallowed[THERMOMETER]
        await world.bridge.until(lambda: world.bluez.adapter.swallowed[THERMOMETER] > before, "it is not on the air")
        world.bluez.adapter.deaf = False
        (event, *_) = await world.until_event(THERMOMETER, after)
        assert event.data.endswith(bthome(200, 1111)[1][2:])

    world.run(steps())


def test_a_device_that_is_silent_on_its_link_gets_a_new_one(world):
    """The watchdog of each device: nothing read, nothing told, though BlueZ says that it is connected."""

    async def steps():
        await settled(world)
        before = world.env[ENV_1].links
        world.env[ENV_1].gatt.mute = True
        await world.bridge.until(lambda: world.env[ENV_1].links > before, "no new link")
        world.env[ENV_1].gatt.mute = False
        await settled(world)
        assert world.state()["counters"]["silent"] >= 1
        assert world.env[ENV_2].linked

    world.run(steps())


def test_when_nothing_else_helps_the_adapter_is_switched_off_and_on(world):
    async def steps():
        async with healed(world)():
            before = steps_of(world, "power_cycle")
            world.bluez.adapter.stuck = Stuck.ADAPTER
            await world.bluez.links.drop_all()
            await until_step(world, "power_cycle", before)

    world.run(steps())


def test_the_ladder_has_an_end_although_it_switches_the_adapter_off_itself(world):
    async def steps():
        async with healed(world)():
            before = {name: steps_of(world, name) for name in ("powered_off", "reported")}
            world.bluez.adapter.deaf = True
            for each in world.env.values():
                each.gatt.mute = True
            await until_step(world, "reported", before["reported"])
            assert steps_of(world, "powered_off") == before["powered_off"]
            for each in world.env.values():
                each.gatt.mute = False
            world.bluez.adapter.deaf = False

    world.run(steps())


def test_every_trouble_is_counted_as_over(world):
    async def steps():
        state = world.state()
        assert state["phase"] in ("scanning", "paused")
        assert state["problem"] is None
        assert state["steps"]["recovered"] >= 3  # since it was killed

    world.run(steps())
