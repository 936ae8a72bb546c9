"""Another program that scans with the same adapter, as BlueZ 5.82 treats it (R2). The settings are the defaults."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest
from dbus_fast import BusType, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from fogline_lab.ble.adapter1 import ADAPTER
from fogline_lab.ble.air import bthome
from fogline_lab.ble.objects import HCI

from .world import HEALED_S, THERMOMETER, World

SETTINGS = '[ble]\nprofiles = ["bthome"]\nstatus_s = 0.2\n'
PACKETS = count(1)


@asynccontextmanager
async def other_program(world):
    """`bluetoothctl`: a function that calls a method of the adapter."""
    bus = await MessageBus(bus_address=world.bus.address, bus_type=BusType.SYSTEM).connect()

    async def call(member: str, signature: str = "", *body: object) -> None:
        reply = await bus.call(Message("org.bluez", HCI, ADAPTER, member, signature=signature, body=list(body)))
        assert reply.message_type is MessageType.METHOD_RETURN, reply.body

    try:
        yield call
    finally:
        bus.disconnect()


async def until_value_comes(world) -> float:
    """A value that is on the air from now on comes; after how long."""
    after, loop = world.mark(), asyncio.get_running_loop()
    began_s = loop.time()
    world.broadcasters[THERMOMETER].say(bthome(next(PACKETS), next(PACKETS)))
    await world.until_event(THERMOMETER, after)
    return loop.time() - began_s


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path, SETTINGS)
    world.bluez.adapter.one_stop_stops_all = True
    world.bluez.adapter.flap_every_s = 0.5
    with world:
        world.run(world.start())
        yield world


@pytest.mark.fault("R2")
def test_a_scan_that_another_program_stops_goes_on(world):
    async def steps():
        await world.until_event(THERMOMETER)
        async with other_program(world) as call:
            for _ in range(2):
                await call("SetDiscoveryFilter", "a{sv}", {"Transport": Variant("s", "le")})
                await call("StartDiscovery")
                await call("StopDiscovery")
                said = len(world.said)
                healed_s = await until_value_comes(world)
                print(f"heard again after {healed_s:.1f} s")
                await world.until_said("BlueZ stopped scanning", said)
                await world.until_said("scanning with hci0", said)
        assert world.state()["steps"]["scan_stopped"] == 2
        assert world.state()["problem"] is None

    world.run(steps())


@pytest.mark.fault("R2")
def test_a_scan_that_bluez_interrupts_for_a_moment_is_left_alone(world):
    async def steps():
        await until_value_comes(world)
        scanners = world.state()["steps"]["scanners"]
        before = world.bluez.adapter.flaps
        async with asyncio.timeout(HEALED_S):
            while world.bluez.adapter.flaps < before + 10:  # noqa: ASYNC110 - a count gives no event
                await asyncio.sleep(0.05)
        await until_value_comes(world)
        assert world.state()["steps"]["scanners"] == scanners

    world.run(steps())
