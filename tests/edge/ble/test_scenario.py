"""The steps that real BlueZ was seen to do, and what the gateway makes of each. In order: one gateway's life."""

import asyncio
import struct

import pytest

from fogline.advertisement import CONTENT_TYPE, GATT_CONTENT_TYPE, decode_heard
from fogline.events.event import Lane
from fogline_lab.amqp import within
from fogline_lab.ble.air import bthome
from fogline_lab.ble.peripheral import ACKNOWLEDGEMENT, IDLE, LONG_VALUE, TWICE, TWICE_VALUE

from .world import BATTERY, BEACON, ENV_1, ENV_2, PROGRAM, TAG, THERMOMETER, advertised

TEMPERATURE = "00002a6e-0000-1000-8000-00805f9b34fb"
LONG = "6e400005-0000-4000-8000-00805f9b0001"
BTHOME_UUID = "0000fcd2-0000-1000-8000-00805f9b34fb"
EDDYSTONE_UUID = "0000feaa-0000-1000-8000-00805f9b34fb"
MORE = ""


def temperatures(events) -> list[int]:
    return [struct.unpack("<h", each.data)[0] for each in events if each.subject == TEMPERATURE]


def device_in(state: dict, device: str) -> dict:
    (found,) = [each for each in state["devices"] if each["device"] == device]
    return found


async def until_state(world, holds) -> None:
    """Until `fogline-edge status` says so."""

    async def wait():
        while not holds(world.state()):  # noqa: ASYNC110 - a file gives no event
            await asyncio.sleep(0.05)

    await within(wait(), "it is not said")


def test_advertisement_is_stored_byte_for_byte(world):
    async def steps():
        (event, *_) = await world.until_event(THERMOMETER)
        assert advertised(event).service_data == {BTHOME_UUID: bytes.fromhex("4002CA0903BF13")}
        assert (event.content_type, event.subject, event.lane, event.adapter) == (CONTENT_TYPE, "bthome", Lane.TELEMETRY, "ble")
        heard = decode_heard(event.properties)
        assert heard.address == THERMOMETER
        assert -70 < heard.rssi < -50
        assert "adapter=hci0" in event.properties
        (event, *_) = await world.until_event(TAG)
        assert advertised(event).manufacturer[0x0499].hex().startswith("0512fc5394c37c")
        assert event.dedup == "shared"

    world.run(steps())


def test_beacon_is_named_by_its_content(world):
    """Its address may change; what it is does not."""

    async def steps():
        beacons = await world.bridge.until(
            lambda: [each for _, each in world.bridge.came if each.subject == "ibeacon"], "no beacon was heard"
        )
        assert advertised(beacons[0]).manufacturer[0x004C].hex().startswith("0215e2c56d")
        assert beacons[0].device != BEACON
        assert decode_heard(beacons[0].properties).address == BEACON
        batteries = await world.bridge.until(
            lambda: [each for _, each in world.bridge.came if (each.properties or "").count(BATTERY.replace(":", "%3A"))],
            "Eddystone was not heard",
        )
        assert advertised(batteries[0]).service_data[EDDYSTONE_UUID].hex().startswith("20000bb8")

    world.run(steps())


def test_it_connects_and_reads_in_turn(world):
    async def steps():
        (first, *_) = await world.until_event("env-1", subject=TEMPERATURE)
        assert first.content_type == GATT_CONTENT_TYPE
        assert 2000 < temperatures([first])[0] < 9000
        (long, *_) = await world.until_event("env-1", subject=LONG)
        assert long.data == LONG_VALUE

    world.run(steps())


def test_characteristic_without_notifications_is_read_and_reported(world):
    async def steps():
        await world.until_event("env-1", subject=LONG)
        await world.until_said(f"env-1 ({ENV_1}): {LONG} does not notify")
        await until_state(world, lambda state: device_in(state, "env-1")["problem"] == f"{LONG} does not notify")

    world.run(steps())


def test_a_read_that_fails_is_a_problem_until_it_succeeds_again(world):
    async def steps():
        await world.until_event("env-2", subject=TWICE)  # what is read once an hour has been
        world.bluez.fail("ReadValue", "Failed", "no", times=12)
        await until_state(world, lambda state: "cannot be read" in device_in(state, "env-1")["problem"])
        await until_state(world, lambda state: device_in(state, "env-1")["problem"] == f"{LONG} does not notify")

    world.run(steps())


def test_notifications_come_in_order(world):
    async def steps():
        after = world.mark()
        said = temperatures(await world.until_event("env-1", after, subject=TEMPERATURE, count=8))
        assert said == sorted(said)
        assert len(set(said)) >= 5
        assert max(map(said.count, said)) <= 2, "read, and notified, but not BlueZ's echo of the read"

    world.run(steps())


def test_two_devices_are_connected_at_once(world):
    async def steps():
        await world.until_event("env-2", subject=TEMPERATURE)
        assert world.env[ENV_1].linked
        assert world.env[ENV_2].linked

    world.run(steps())


def test_it_hears_others_while_it_is_connected(world):
    async def steps():
        after = world.mark()
        world.broadcasters[THERMOMETER].say(bthome(1, 1999))
        (event, *_) = await world.until_event(THERMOMETER, after)
        assert advertised(event).service_data[BTHOME_UUID] == bthome(1, 1999)[1][2:]
        assert event.dedup == "shared"
        assert world.env[ENV_1].linked

    world.run(steps())


def test_a_command_is_answered_by_notification(world):
    async def steps():
        reply = await world.command("env-1", "tell", b"ack:led=1")
        assert (reply.commandstate, reply.status, reply.data) == ("SUCCEEDED", 200, b"led=1")

    world.run(steps())


def test_a_command_is_answered_by_the_write_response(world):
    async def steps():
        reply = await world.command("env-1", "write", b"on")
        assert (reply.commandstate, reply.status) == ("SUCCEEDED", 204)
        assert world.env[ENV_1].gatt.writes[-1] == b"on"

    world.run(steps())


def test_write_without_response_leaves_the_command_in_doubt(world):
    async def steps():
        reply = await world.command("env-1", "shout", b"hey", ttl_s=3.0)
        assert reply.commandstate == "IN_DOUBT"
        reply = await world.command("env-1", "shout", b"hey", reply=False)
        assert (reply.commandstate, reply.status) == ("SUCCEEDED", 202)
        assert world.env[ENV_1].gatt.writes[-2:] == [b"hey", b"hey"]

    world.run(steps())


def test_of_two_characteristics_with_one_uuid_the_first_is_read_and_written(world):
    async def steps():
        (value, *_) = await world.until_event("env-1", subject=TWICE)
        assert value.data == TWICE_VALUE
        reply = await world.command("env-1", "twice", b"first of two")
        assert (reply.commandstate, reply.status) == ("SUCCEEDED", 204)
        assert world.env[ENV_1].gatt.writes[-1] == b"first of two"

    world.run(steps())


def test_an_att_error_is_the_answer(world):
    async def steps():
        reply = await world.command("env-1", "forbidden", b"x")
        assert (reply.commandstate, reply.status) == ("FAILED", 405)
        assert reply.data == b"ATT error 0x03: Write Not Permitted", "words, and no Python (R4)"

    world.run(steps())


@pytest.mark.parametrize(("name", "why"), [("missing", b"no characteristic"), ("dance", b"no command dance")])
def test_command_that_cannot_be_written_is_refused(world, name, why):
    async def steps():
        reply = await world.command("env-1", name, b"x")
        assert (reply.commandstate, reply.status) == ("REJECTED", 422)
        assert why in reply.data

    world.run(steps())


def test_a_command_that_is_not_answered_is_in_doubt_and_the_next_one_gets_a_link_of_its_own(world):
    async def steps():
        links = world.env[ENV_1].links
        reply = await world.command("env-1", "tell", b"nothing", ttl_s=3.0)
        assert reply.commandstate == "IN_DOUBT"
        reply = await world.command("env-1", "tell", b"ack:still here")
        assert reply.data == b"still here"
        assert world.env[ENV_1].links == links + 1

    world.run(steps())


def test_a_command_that_may_be_repeated_is_when_its_write_fails(world):
    async def steps():
        world.bluez.fail("WriteValue", "Failed", "Not connected")
        reply = await world.command("env-1", "write", b"once more", idempotent=True)
        assert (reply.commandstate, reply.status) == ("SUCCEEDED", 204)

    world.run(steps())


def test_value_read_from_a_characteristic_is_no_answer_to_a_command(world):
    """BlueZ tells what was read once more, as if the device had notified it."""

    async def steps():
        after = world.mark()
        reply = await world.command("env-1", "tell", b"nothing", ttl_s=3.0)
        assert (reply.commandstate, reply.data) != ("SUCCEEDED", IDLE)
        reply = await world.command("env-1", "tell", b"ack:done")
        assert reply.data == b"done"
        values = await world.until_event("env-1", after, subject=ACKNOWLEDGEMENT, count=2)
        assert {each.data for each in values} == {IDLE}

    world.run(steps())


def test_a_link_that_the_device_ends_comes_again(world):
    async def steps():
        links, after = world.env[ENV_1].links, world.mark()
        await world.command("env-1", "write", b"drop", reply=False)
        await world.bridge.until(lambda: world.env[ENV_1].links > links, "it does not connect again")
        await world.until_event("env-1", after, subject=LONG)

    world.run(steps())


def test_a_device_out_of_reach_comes_again(world):
    async def steps():
        links, after = world.env[ENV_1].links, world.mark()
        await world.command("env-1", "write", b"vanish:2", reply=False)
        await world.bridge.until(lambda: world.env[ENV_1].links > links, "it does not connect again")
        await world.until_event("env-1", after, subject=LONG)

    world.run(steps())


def test_a_command_waits_for_a_device_that_is_not_there(world):
    async def steps():
        links = world.env[ENV_2].links
        await world.command("env-2", "write", b"vanish:2", reply=False)
        reply = await world.command("env-2", "tell", b"ack:back")
        assert (reply.commandstate, reply.data) == ("SUCCEEDED", b"back")
        assert world.env[ENV_2].links > links

    world.run(steps())


def test_status_shows_it_to_people(world):
    async def steps():
        command = [PROGRAM, "status", "--config", world.config]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await within(process.communicate(), "status does not end")
        lines = out.decode().splitlines()
        (title,) = [number for number, line in enumerate(lines) if line.startswith("bluetooth at ")]
        assert lines[title].endswith((": scanning, hci0", ": paused, hci0"))
        assert lines[title + 1].startswith("  active scan: profile ibeacon: it stores unchanged advertisements")
        assert lines[title + 2].startswith("  steps: scanners ")
        assert "stored " in lines[title + 3]
        (device,) = [line for line in lines if line.startswith("  env-1, ")]
        assert f"{ENV_1}, bench, heard " in device

    world.run(steps())


def test_it_leaves_in_order(world):
    async def steps():
        await world.stop()
        await within(world.env[ENV_1].ended(), "the link does not end")
        assert not world.env[ENV_1].linked

    world.run(steps())
