"""The gateway is killed between the steps of a rule's command or message, also offline: each is done once, or in doubt."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from fogline.process.crash_points import CrashPoint
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Connect, PacketType, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.device.mqtt_wire import MqttWire
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


MESSAGE_RULE = """
users = "{users}"
[mqtt.subscribers]
viewer = ["rule/#"]
[[rules.react]]
name = "hot"
when = "event.value.t > 26.0"
then = [{{ topic = "rule/hot" }}]
"""
MESSAGE_POINTS = {
    CrashPoint.BEFORE_COMMIT: False,
    CrashPoint.AFTER_COMMIT_BEFORE_ACK: True,
    CrashPoint.AFTER_RULE_MESSAGE_BEFORE_DELETE: True,
}
"""Whether the message is in doubt afterwards."""


async def wire(port: int, name: str) -> MqttWire:
    """Connect a client whose name is its password."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    opened = MqttWire(reader, writer, V5)
    await opened.send(Connect(version=V5, client_id=name, username=name, password=name.encode()))
    assert isinstance(await opened.receive(), Connack)
    return opened


async def messages(viewer: MqttWire, last: bytes = b"") -> list[bytes]:
    """Return the messages that come until the connection ends, or until the `last` one."""
    found: list[bytes] = []
    while (not last or last not in found) and (packet := await viewer.receive()) is not None:
        if isinstance(packet, Publish):
            found.append(packet.payload)
            await viewer.send(Ack(kind=PacketType.PUBACK, packet_id=packet.packet_id))
    return found


@pytest.mark.fault("X14")
@pytest.mark.parametrize("point", MESSAGE_POINTS)
async def test_message_of_a_rule_reaches_subscribers_once_at_most_and_is_never_lost_silently(folder, point):
    users = password_file(folder, viewer="viewer", d1="d1")
    gateway = GatewayProcess(folder, free_port(), MESSAGE_RULE.format(users=users))
    try:
        port = await gateway.start(point)
        viewer, sensor = await wire(port, "viewer"), await wire(port, "d1")
        await viewer.subscribe("rule/#")
        await sensor.publish(*HOT, 7)
        acknowledged = await sensor.receive() is not None
        got = await messages(viewer)
        assert await gateway.died()
        port = await gateway.start()
        viewer, sensor = await wire(port, "viewer"), await wire(port, "d1")
        await viewer.subscribe("rule/#")
        if not acknowledged:
            await sensor.publish(*HOT, 7, dup=True)
        await sensor.publish("telemetry", b'{"t": 20}', 8)
        await sensor.publish("telemetry", b'{"t": 28}', 9)
        got += await messages(viewer, b'{"t": 28}')
        status = await gateway.stop()
    finally:
        await gateway.stop()
    in_doubt = status["rules"]["hot"].get("in_doubt", 0)
    assert status["rules"]["hot"]["fired"] == 2
    assert in_doubt == MESSAGE_POINTS[point]
    assert got.count(HOT[1]) <= 1, "nobody gets a message twice"
    assert got.count(HOT[1]) + in_doubt >= 1, "a message is never lost silently"
    print(f"{point}: {got.count(HOT[1])} published, {in_doubt} in doubt")
