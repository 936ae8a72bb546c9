"""`fogline-edge ble scan`, as a person uses it."""

import asyncio
import contextlib
import json
import os
import signal
import tomllib

import pytest

from fogline_lab.amqp import within

from .world import BATTERY, ENV_1, PROGRAM, TAG, THERMOMETER, World

CLEAR = "\x1b[H\x1b[2J"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One where no gateway runs."""
    with World(tmp_path_factory.mktemp("scan"), "") as world:
        yield world


async def scanning(world, *arguments: str):
    pipe = asyncio.subprocess.PIPE
    command = [PROGRAM, "ble", "scan", *arguments]
    return await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=world.environment)


def test_scan_lists_devices_their_profiles_and_settings_to_write(world):
    async def steps():
        process = await scanning(world, "--seconds", "1.5", "--json")
        out, said = await within(process.communicate(), "the scan does not end")
        assert (process.returncode, said) == (0, b"")
        found = json.loads(out)
        devices = {each["address"]: each for each in found["devices"]}
        assert devices[THERMOMETER]["profile"] == "bthome"
        assert devices[TAG]["profile"] == "ruuvitag"
        assert devices[BATTERY]["profile"] == "eddystone-tlm"
        assert (devices[ENV_1]["profile"], devices[ENV_1]["name"]) == ("environmental-sensing", "env-1")
        settings = tomllib.loads(found["toml"])["ble"]
        assert set(settings["profiles"]) == {"bthome", "ruuvitag", "ibeacon", "eddystone-tlm"}
        assert {"address": ENV_1, "profile": "environmental-sensing", "device": "env-1"} in settings["devices"]

    world.run(steps())


def test_ctrl_c_ends_it_in_order_with_the_table(world):
    """On a terminal, where the table is drawn while it scans."""

    async def steps():
        terminal, its_end = os.openpty()
        pipe = asyncio.subprocess.PIPE
        command = [PROGRAM, "ble", "scan", "--seconds", "60"]
        process = await asyncio.create_subprocess_exec(*command, stdout=its_end, stderr=pipe, env=world.environment)
        os.close(its_end)
        screen = asyncio.create_task(asyncio.to_thread(drawn, terminal, process, "C0:00:00:00:00:01"))
        _, said = await within(process.communicate(), "the scan does not end")
        assert (process.returncode, said) == (0, b"")
        text = (await screen).rpartition(CLEAR)[2]
        assert "C0:00:00:00:00:01" in text
        assert "[ble]\r\nprofiles = [" in text
        assert not world.bluez.adapter.scanning

    world.run(steps())


def drawn(terminal: int, process, wanted: str) -> str:
    """All that the program draws; once that holds `wanted`, Ctrl-C is pressed."""
    text = ""
    with open(terminal, "rb", buffering=0, closefd=True) as screen, contextlib.suppress(OSError):  # EIO: its end is closed
        pressed = False
        while piece := screen.read(65_536):
            text += piece.decode(errors="replace")
            if wanted in text and not pressed:
                pressed = True
                process.send_signal(signal.SIGINT)
    return text


def test_it_and_a_gateway_scan_at_once(world):
    async def steps():
        world.config.write_text(world.config.read_text() + '[ble]\nprofiles = ["bthome"]\n')
        await world.start()
        await world.until_event(THERMOMETER)
        process = await scanning(world, "--seconds", "1", "--json")
        out, _ = await within(process.communicate(), "the scan does not end")
        assert THERMOMETER in {each["address"] for each in json.loads(out)["devices"]}
        await world.stop()

    world.run(steps())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--adapter", "hci7"], "there is no Bluetooth adapter hci7 (ble.adapter); plug one in"),
        (["--profile", "nowhere.toml"], "profile: there is no nowhere.toml"),
    ],
)
def test_scan_error_is_one_line(world, arguments, said):
    async def steps():
        process = await scanning(world, *arguments)
        out, error = await within(process.communicate(), "the scan does not end")
        assert (process.returncode, out) == (2, b"")
        assert said in error.decode()
        assert error.count(b"\n") == 1

    world.run(steps())


def test_no_bluetooth_at_all_is_one_line(world):
    async def steps():
        await world.bluez.stop()
        process = await scanning(world)
        _, error = await within(process.communicate(), "the scan does not end")
        assert (process.returncode, error.count(b"\n")) == (2, 1)
        assert b"bluetoothd does not run" in error
        await world.bluez.start(powered=False)
        process = await scanning(world)
        _, error = await within(process.communicate(), "the scan does not end")
        assert (process.returncode, error.count(b"\n")) == (2, 1)
        assert b"hci0 is off; to switch it on: bluetoothctl power on" in error

    world.run(steps())
