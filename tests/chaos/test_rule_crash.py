"""The gateway is killed between the steps of a rule's command, also while the bridge is away: it is done once, or in doubt."""

from contextlib import asynccontextmanager, suppress

import pytest

from fogline.process.crash_points import CrashPoint
from fogline_edge.adapters.mqtt.protocol.packets import PacketType
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.kafka_broker import free_port
from sampling import a_few

HOT = ("telemetry", b'{"t": 27}')
RULE = """
[[rules.react]]
name = "hot"
when = "event.value.t > 26.0"
then = [{{ command = "switch", json = {{ on = true }}, ttl_s = 600, reply = {reply} }}, {{ alarm = "it is hot" }}]
"""
ONCE = (
    CrashPoint.AFTER_RULE_COMMAND_BEFORE_COMMIT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT_BEFORE_ACK,
    CrashPoint.AFTER_RULE_COMMIT_BEFORE_QUEUE,
    CrashPoint.BEFORE_SENDING_COMMIT,
    CrashPoint.AFTER_ANSWER_COMMIT,
)


@asynccontextmanager
async def device(port: int):
    """The device that is hot and that gets the command."""
    there = MqttLamp()
    await there.connect(port)
    await there.take_commands()
    try:
        yield there
    finally:
        await there.close()


async def killed_and_started(gateway: GatewayProcess, point: CrashPoint) -> list[str]:
    """Return the ids of the commands that the device got in both lives of the gateway, once it has answered."""
    acknowledged, got = False, []
    async with device(await gateway.start(point)) as lamp:
        with suppress(ConnectionError):
            await lamp.publish(*HOT)
            acknowledged = True
            if not lamp.commands:
                await lamp.until(PacketType.PUBLISH)
            await lamp.publish(f"command///res/{lamp.commands[0]}/200", b"done")
        assert await gateway.died()
        got += lamp.commands
    async with device(await gateway.start()) as lamp:
        if not acknowledged:
            await lamp.publish(*HOT, dup=True)
        if not got and not lamp.commands:
            await lamp.until(PacketType.PUBLISH)
        answered = (got + lamp.commands)[0]
        await lamp.publish(f"command///res/{answered}/200", b"done", dup=True)
        return got + lamp.commands


def judge(bridge: AcceptingBridge, got: list[str], state: str) -> None:
    events = [event for _, event in bridge.came]
    (alarm,) = {each.id: each for each in events if each.type == "alarm"}.values()
    (reading,) = {each.id: each for each in events if each.type == "telemetry" and each.data == HOT[1]}.values()
    ((command, ended),) = bridge.replies()
    assert (ended, command.startswith("rule.")) == (state, True)
    assert got in ([command], [])
    assert f'"event":"{reading.id}"'.encode() in alarm.data
    (reply,) = [each for each in events if each.commandid == command]
    assert reply.correlationid == f"rule/hot/{reading.id}"


@pytest.mark.fault("X13")
@pytest.mark.parametrize("point", a_few(ONCE, CrashPoint.AFTER_COMMIT_BEFORE_ACK, CrashPoint.AFTER_RULE_COMMIT_BEFORE_QUEUE))
async def test_command_of_a_rule_is_done_once_although_the_gateway_is_killed_without_a_bridge(folder, point):
    port = free_port()
    gateway = GatewayProcess(folder, port, RULE.format(reply="true"))
    try:
        got = await killed_and_started(gateway, point)
        assert len(got) == 1
        await gateway.stop()
        bridge = AcceptingBridge()
        gateway = GatewayProcess(folder, await bridge.serve(), RULE.format(reply="true"))
        await gateway.start()
        await bridge.until(lambda: bridge.replies() and len(bridge.events()) >= 3, "the verdict does not come")
        judge(bridge, got, "SUCCEEDED")
        bridge.close()
    finally:
        await gateway.stop()
    print(f"{point}: done once")


@pytest.mark.fault("X13")
async def test_command_of_a_rule_that_may_have_reached_its_device_ends_in_doubt(folder):
    bridge = AcceptingBridge()
    gateway = GatewayProcess(folder, await bridge.serve(), RULE.format(reply="false"))
    try:
        async with device(await gateway.start(CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE)) as lamp:
            with suppress(ConnectionError):
                await lamp.publish(*HOT)
            assert await gateway.died()
            assert lamp.commands == []
        async with device(await gateway.start()) as lamp:
            await bridge.until(lambda: bridge.replies() and len(bridge.events()) >= 3, "the verdict does not come")
            await lamp.publish("telemetry", b'{"t": 20}')
            assert lamp.commands == []
        judge(bridge, [], "IN_DOUBT")
    finally:
        await gateway.stop()
        bridge.close()
