"""The gateway ends while a command to a Zigbee device is at the broker: it is repeated only if that does no harm."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from chaos.places_to_crash import BROKER_POINTS
from fogline.process.crash_points import STOP_VARIABLE, CrashPoint
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.device.zigbee2mqtt_program import Zigbee2MqttProgram
from fogline_lab.gateway.connected_gateway import durable_command
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.mosquitto_process import Mosquitto, installed_mosquitto

PLUG = "0x00158d00018255df"
SETTINGS = """
[[mqtt_clients]]
name = "zigbee"
profile = "zigbee2mqtt"
broker = "127.0.0.1:{port}"
send_commands = true
"""
pytestmark = pytest.mark.skipif(installed_mosquitto() is None, reason="mosquitto is not installed")


@asynccontextmanager
async def site(folder):
    """A broker with Zigbee2MQTT, a bridge, and a gateway that is not started."""
    broker, bridge = Mosquitto(folder), AcceptingBridge()
    broker.start()
    program = await asyncio.to_thread(Zigbee2MqttProgram, broker.port, {PLUG: "plug"})
    gateway = GatewayProcess(folder, await bridge.serve(), SETTINGS.format(port=broker.port))
    try:
        yield program, bridge, gateway
    finally:
        await gateway.stop()
        bridge.close()
        await asyncio.to_thread(program.close)
        broker.kill()


def published(program):
    return program.commands.qsize()


@pytest.mark.parametrize("point", BROKER_POINTS)
@pytest.mark.parametrize(
    ("traits", "state", "times"),
    [({"idempotent": True}, "SUCCEEDED", 2), ({"reply": False}, "IN_DOUBT", 1)],
    ids=["idempotent", "one-way"],
)
@pytest.mark.fault("X6")
async def test_gateway_killed_with_a_command_at_the_broker_repeats_only_an_idempotent_one(folder, point, traits, state, times):
    async with site(folder) as (program, bridge, gateway):
        command = durable_command(device=PLUG, name="set", data=b'{"state": "ON"}', in_s=600.0, **traits)
        await gateway.start(point)
        await bridge.command(command)
        assert await gateway.died()
        program.states["plug"] = {"state": "OFF"}
        await gateway.start()
        await bridge.until(lambda: bridge.replies() == [("C1", state)], "no reply tells of its end")
        # Without a PUBACK the broker may have lost the message with the connection: that is the doubt.
        assert published(program) in ({times, times - 1} if point is BROKER_POINTS[0] else {times})


@pytest.mark.parametrize("point", BROKER_POINTS)
@pytest.mark.fault("C15")
async def test_gateway_that_gets_sigterm_with_a_command_at_the_broker_ends_with_status_0(folder, point):
    async with site(folder) as (_, bridge, gateway):
        gateway._process.environment[STOP_VARIABLE] = point
        await gateway.start()
        await bridge.command(durable_command(device=PLUG, name="set", data=b'{"state": "ON"}', in_s=600.0))
        assert await asyncio.to_thread(gateway._process.wait, 60.0) == 0


@pytest.mark.parametrize("point", [CrashPoint.BEFORE_SENDING_COMMIT, CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE])
@pytest.mark.fault("X6")
async def test_gateway_killed_before_the_broker_has_a_command_publishes_it_at_most_once(folder, point):
    async with site(folder) as (program, bridge, gateway):
        command = durable_command(device=PLUG, name="set", data=b'{"state": "ON"}', in_s=600.0, reply=False)
        await gateway.start(point)
        await bridge.command(command)
        assert await gateway.died()
        assert published(program) == 0
        await gateway.start()
        await (await bridge.command(command))
        state = "SUCCEEDED" if point is CrashPoint.BEFORE_SENDING_COMMIT else "IN_DOUBT"
        await bridge.until(lambda: bridge.replies() == [("C1", state)], "no reply tells of its end")
        assert published(program) == (state == "SUCCEEDED")
