"""Commands to Tasmota, Shelly and any other devices through a real broker."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from fogline.commands.command import Reply
from fogline_edge.broker_settings import BrokerCommandSettings, TopicSettings
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.device.broker_program import BrokerProgram
from fogline_lab.port import MemoryPort


@pytest.fixture
def site(broker, connecting):
    """A broker with a device whose program answers, and a client to which the device is reachable once it has reported."""

    @asynccontextmanager
    async def site(device, filter_, answers, report, port=None, **settings):
        commands = MemoryCommands()
        program = await asyncio.to_thread(BrokerProgram, broker.port, filter_, answers)
        try:
            async with connecting(
                port or MemoryPort(), broker, command_port=commands, send_commands=True, **settings
            ) as client:
                await asyncio.to_thread(program.publish, *report, retain=True)
                await commands.until(lambda: device in commands.devices, "the device is reachable")
                yield program, commands, client
        finally:
            await asyncio.to_thread(program.close)

    return site


async def answered(commands, command):
    commands.send(command)
    await commands.until(lambda: command.id in commands.answers, "it is answered")
    return commands.answers[command.id]


async def test_tasmota_device_switches_and_refuses(site):
    def answers(topic, payload):
        known = topic.endswith("/Power")
        yield "stat/plug/RESULT", json.dumps({"POWER": payload.decode()} if known else {"Command": "Unknown"}).encode()

    async with site("plug", "cmnd/plug/#", answers, ("tele/plug/LWT", b"Online"), profile="tasmota") as (_, commands, client):
        reply = await answered(commands, make_command("plug", "Power", data=b"ON", content_type="text/plain"))
        assert reply == Reply(200, b'{"POWER": "ON"}', "application/json")
        assert (await answered(commands, make_command("plug", "Pover", id="CMD-2", data=b"ON"))).status == 422
        assert client.counters.dead == 0


async def test_tasmota_device_that_is_lost_is_unreachable_until_it_is_back(site):
    async with site("plug", "cmnd/plug/#", lambda *_: (), ("tele/plug/LWT", b"Online"), profile="tasmota") as (
        program,
        commands,
        _,
    ):
        await asyncio.to_thread(program.publish, "tele/plug/LWT", b"Offline", retain=True)
        await commands.until(lambda: not commands.devices, "it is unreachable")
        await asyncio.to_thread(program.publish, "tele/plug/LWT", b"Online", retain=True)
        await commands.until(lambda: "plug" in commands.devices, "it is reachable again")


async def test_devices_that_were_heard_are_reachable_after_a_restart(site, broker, connecting):
    port, commands = MemoryPort(), MemoryCommands()
    async with site("plug", "cmnd/plug/#", lambda *_: (), ("tele/plug/LWT", b"Online"), port=port, profile="tasmota"):
        pass
    async with connecting(port, broker, command_port=commands, send_commands=True, profile="tasmota"):
        await commands.until(lambda: "plug" in commands.devices, "the device is reachable")


def shelly_rpc(_topic, payload):
    request = json.loads(payload)
    known = request["method"] == "Switch.Set"
    outcome = {"result": {"was_on": False}} if known else {"error": {"code": 404, "message": "No handler"}}
    yield f"{request['src']}/rpc", json.dumps({"id": request["id"], "src": "shellyplus1-a8", **outcome}).encode()


async def test_shelly_answers_each_command_by_its_id(site):
    report = "shellyplus1-a8/online", b"true"
    async with site("shellyplus1-a8", "shellyplus1-a8/rpc", shelly_rpc, report, profile="shelly") as (_, commands, client):
        call = make_command("shellyplus1-a8", "Switch.Set", data=b'{"id":0,"on":true}')
        assert await answered(commands, call) == Reply(200, b'{"was_on":false}', "application/json")
        assert (await answered(commands, make_command("shellyplus1-a8", "Nothing", id="CMD-2"))).status == 404
        commands.send(make_command("shellyplus1-a8", "Switch.Set", id="CMD-3", reply=False))
        await commands.until(lambda: commands.told[-1] == ("taken", "CMD-3"), "it is taken")
        assert client.counters.dead == 0


async def test_answer_to_a_command_of_a_former_run_is_reported(site):
    """The gateway was killed after it had published; the journal has the command."""
    report = "shellyplus1-a8/online", b"true"
    async with site("shellyplus1-a8", "none", shelly_rpc, report, profile="shelly") as (program, commands, client):
        commands.known["CMD-1"] = "shellyplus1-a8"
        answer = b'{"id":"CMD-1","src":"shellyplus1-a8","result":null}'
        await asyncio.to_thread(program.publish, f"{client.client_id}/shellyplus1-a8/rpc", answer)
        await commands.until(lambda: "CMD-1" in commands.answers, "it is answered")


async def test_silent_device_of_any_broker_is_in_doubt_and_an_error_is_its_answer(site):
    rule = BrokerCommandSettings(
        topic="plant/{device}/set", echo="plant/{device}/state", echo_argument="", error="plant/{device}/error"
    )

    def answers(_topic, payload):
        if payload == b"shut":
            yield "plant/valve/error", b"it is stuck"

    settings = {"profile": "plain", "topics": [TopicSettings(topic="plant/{device}/state")], "commands": [rule]}
    async with site("valve", "plant/valve/set", answers, ("plant/valve/state", b"shut"), **settings) as (_, commands, _client):
        reply = await answered(commands, make_command("valve", "set", data=b"shut"))
        assert reply == Reply(500, b"it is stuck", "text/plain")
        commands.send(make_command("valve", "set", id="CMD-2", data=b"open"))
        pass_time(15)
        await commands.until(lambda: commands.told[-1] == ("lost", "CMD-2"), "it is in doubt")
