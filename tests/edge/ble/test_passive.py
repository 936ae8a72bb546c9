"""Passive scans, through bleak and a real D-Bus, on the stand-in for BlueZ: who asks for one, gets one, and when not."""

import asyncio
import urllib.request
from contextlib import contextmanager
from itertools import count

import pytest

from edge.ble.supervisor_steps import until_state
from fogline_edge.operate.status import read_status
from fogline_lab.ble.air import bthome

from .world import ENV_1, THERMOMETER, World

HEAD = """\
[ble]
status_s = 0.2
silence_s = {silence_s}
longest_retry_s = 1
{more}
"""
BUTTON = 0x16, b"\xd2\xfc\x40\x3a\x01"
"""BTHome v2: a press of a button (object 0x3a), without a packet id."""
NAMED = 'name = "named"\nchannel = "named"\n[[recognise]]\nname = "env*"\n'
METER = 'name = "meter"\nchannel = "meter"\n[[recognise]]\nservices = ["181a"]\n[[notify]]\ncharacteristic = "2a6e"\n'
PACKETS = count(1)


@contextmanager
def running(folder, more='profiles = ["bthome", "ruuvitag"]', *, experimental=True, silence_s=20):
    (folder / "named.toml").write_text(NAMED)
    (folder / "meter.toml").write_text(METER)
    with World(folder, HEAD.format(more=more, silence_s=silence_s), experimental=experimental) as world:
        world.run(world.start())
        yield world


async def until_scan(world, mode: str) -> str:
    """Until the scan has this mode. Returns the reason that `status` shows."""
    while "ble" not in read_status(world.folder / "data"):  # noqa: ASYNC110 - a file gives no event
        await asyncio.sleep(0.05)
    await until_state(world, lambda state: state["phase"] == "scanning" and state["scan"] == mode, f"no {mode} scan")
    return world.state()["scan_reason"]


async def until_value(world) -> None:
    after = world.mark()
    world.broadcasters[THERMOMETER].say(bthome(next(PACKETS), next(PACKETS)))
    await world.until_event(THERMOMETER, after)


def metric(world) -> str:
    with urllib.request.urlopen(f"http://{world.ready['metrics']}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(each for each in lines if each.startswith("fogline_ble_scan{"))


def test_sensors_are_received_without_scan_requests(tmp_path):
    async def steps(world):
        await until_value(world)
        assert world.bluez.adapter.radio.scans_actively is False
        await until_value(world)
        assert await until_scan(world, "passive") == "BlueZ offers it, and no profile needs more"
        assert "passive scan: BlueZ offers it" in world.shown()
        assert ("StartDiscovery", "/org/bluez/hci0") not in world.bluez.calls
        assert await asyncio.to_thread(metric, world) == 'fogline_ble_scan{reason="passive"} 1.0'
        await world.until_said("the scan is passive")

    with running(tmp_path) as world:
        world.run(steps(world))


def test_without_the_interface_of_bluez_the_scan_is_active_and_status_says_why(tmp_path):
    async def steps(world):
        await until_value(world)
        assert world.bluez.adapter.radio.scans_actively is True
        assert "Experimental = true" in await until_scan(world, "active")
        line = await world.until_said("the scan is active: BlueZ offers no passive scan")
        assert " WARNING " in line, "the operator has asked for a passive one"
        assert await asyncio.to_thread(metric, world) == 'fogline_ble_scan{reason="unsupported"} 1.0'
        await world.bluez.stop()
        world.bluez.adapter.monitors.offered = True
        await world.bluez.start()
        await until_scan(world, "passive")
        await until_value(world)
        assert world.bluez.adapter.radio.scans_actively is False

    with running(tmp_path, 'profiles = ["bthome"]\nscan = "passive"', experimental=False) as world:
        world.run(steps(world))


def test_profile_that_needs_scan_responses_makes_the_scan_active(tmp_path):
    async def steps(world):
        await until_value(world)
        assert world.bluez.adapter.radio.scans_actively is True
        assert await until_scan(world, "active") == "profile named: most devices send their name in scan responses only"

    with running(tmp_path, 'profiles = ["bthome", "named.toml"]') as world:
        world.run(steps(world))


def test_passive_scan_that_bluez_refuses_is_an_active_one(tmp_path):
    async def steps(world):
        await world.stop()
        world.bluez.fail("RegisterMonitor", "Failed", "Failed to create Adv Monitor app")
        await world.start()
        await until_value(world)
        assert "BlueZ refused a passive scan" in await until_scan(world, "active")
        assert world.state()["problem"] is None

    with running(tmp_path) as world:
        world.run(steps(world))


@pytest.mark.parametrize("fault", ["refused", "once"])
def test_passive_scan_that_the_kernel_refuses_later_or_a_controller_cuts_short_is_an_active_one(tmp_path, fault):
    """Linux before 5.10 refuses the monitor after BlueZ has taken it; some controllers report each device once."""

    async def steps(world):
        assert "the passive scan received nothing for" in await until_scan(world, "active")
        await until_value(world)
        assert world.bluez.adapter.radio.scans_actively is True
        await until_state(world, lambda state: state["problem"] is None, "it is a problem still")

    with World(tmp_path, HEAD.format(more='profiles = ["bthome"]', silence_s=0.5), experimental=True) as world:
        setattr(world.bluez.adapter.monitors, fault, True)
        world.run(world.start())
        world.run(steps(world))


def test_presses_of_a_button_without_a_packet_id_need_an_active_scan(tmp_path):
    async def steps(world):
        await until_scan(world, "passive")
        world.broadcasters[THERMOMETER].say(BUTTON)
        assert f"{THERMOMETER} sends presses without a packet id" in await until_scan(world, "active")
        await world.until_event(THERMOMETER)

    with running(tmp_path) as world:
        world.run(steps(world))


def test_device_is_connected_to_from_a_passive_scan_if_the_settings_say_so(tmp_path):
    """The scan pauses for the attempt, and goes on as a passive one."""

    async def steps(world):
        await world.until_event("env-1")
        await until_scan(world, "passive")
        await until_value(world)
        assert world.bluez.adapter.radio.scans_actively is False

    listed = f'[[ble.devices]]\ndevice = "env-1"\naddress = "{ENV_1}"\nprofile = "meter.toml"'
    with running(tmp_path, f'profiles = ["bthome"]\nscan = "passive"\n{listed}') as world:
        world.run(steps(world))
