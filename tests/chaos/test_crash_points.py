"""C1 to C3, X3 and X6: the gateway killed at each named point, started again, and a device that does as devices do."""

from contextlib import asynccontextmanager, suppress

import pytest

from chaos.places_to_crash import (
    BODY_POINTS,
    BRIDGE_POINTS,
    BROKER_POINTS,
    CANCEL_POINTS,
    DIRECT_POINTS,
    RESHARD_POINTS,
    RULE_POINTS,
    WITH_DEVICE,
)
from fogline.process.crash_points import CrashPoint, _select
from fogline_edge.adapters.mqtt.protocol.packets import PacketType
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.gateway.connected_gateway import cancel_request, durable_command
from fogline_lab.gateway.gateway_process import GatewayProcess

READING = ("telemetry", b'{"n": 1}')
ANSWER = ("command///res/C1/200", b"done")


@asynccontextmanager
async def surroundings(folder):
    """A bridge, a gateway that is not started, and what ends both."""
    bridge = AcceptingBridge()
    gateway = GatewayProcess(folder, await bridge.serve())
    try:
        yield bridge, gateway
    finally:
        await gateway.stop()
        bridge.close()


@asynccontextmanager
async def device(port: int):
    """A device on the gateway."""
    there = MqttLamp()
    await there.connect(port)
    try:
        yield there
    finally:
        await there.close()


async def publish_until_it_dies(gateway: GatewayProcess, point: CrashPoint) -> bool:
    """A reading; whether it was acknowledged before the gateway died."""
    acknowledged = False
    async with device(await gateway.start(point)) as lamp:
        with suppress(ConnectionError):
            await lamp.publish(*READING)
            acknowledged = True
        assert await gateway.died()
    return acknowledged


async def stored_once_after_a_resend(folder, point: CrashPoint):
    async with surroundings(folder) as (bridge, gateway):
        assert not await publish_until_it_dies(gateway, point)
        async with device(await gateway.start()) as lamp:
            await lamp.publish(*READING, dup=True)
        await bridge.until(bridge.events, "the event does not arrive")
        (stream,) = (await gateway.stop())["streams"]
        assert list(bridge.events().values()) == [1]
        return stream


async def before_commit(folder):
    stream = await stored_once_after_a_resend(folder, CrashPoint.BEFORE_COMMIT)
    assert (stream["stored"], stream["duplicate"]) == (1, 0)


async def after_commit_before_ack(folder):
    stream = await stored_once_after_a_resend(folder, CrashPoint.AFTER_COMMIT_BEFORE_ACK)
    assert (stream["stored"], stream["duplicate"]) == (1, 1)


async def after_send_before_settle(folder):
    async with surroundings(folder) as (bridge, gateway):
        assert await publish_until_it_dies(gateway, CrashPoint.AFTER_SEND_BEFORE_SETTLE)
        assert list(bridge.events().values()) == [1]
        await gateway.start()
        await bridge.until(lambda: list(bridge.events().values()) == [2], "the same does not come again")
        (stream,) = (await gateway.stop())["streams"]
        assert (stream["stored"], len(bridge.events())) == (1, 1)


async def command_until_it_dies(bridge, gateway, point: CrashPoint, **other) -> MqttLamp:
    """A device that is there gets a command, and answers what it gets."""
    async with device(await gateway.start(point)) as lamp:
        await lamp.take_commands()
        await bridge.command(durable_command(in_s=600.0, **other))
        with suppress(ConnectionError):
            await lamp.until(PacketType.PUBLISH)
            await lamp.publish(*ANSWER)
        assert await gateway.died()
    return lamp


async def commanded_again(bridge, gateway, first: MqttLamp, state: str, **other) -> list[str]:
    """The bridge sends it again; what the device got in both lives, once the command's end is told."""
    async with device(await gateway.start()) as lamp:
        await lamp.take_commands()
        await (await bridge.command(durable_command(in_s=600.0, **other)))
        if state == "SUCCEEDED":
            if not first.commands + lamp.commands:
                await lamp.until(PacketType.PUBLISH)
            await lamp.publish(*ANSWER, dup=bool(first.commands))
        await bridge.until(lambda: bridge.replies() == [("C1", state)], "no reply tells of its end")
        return first.commands + lamp.commands


async def before_sending_commit(folder):
    async with surroundings(folder) as (bridge, gateway):
        first = await command_until_it_dies(bridge, gateway, CrashPoint.BEFORE_SENDING_COMMIT)
        assert await commanded_again(bridge, gateway, first, "SUCCEEDED") == ["C1"]


async def after_sending_commit_before_device(folder):
    point = CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE
    for name, other, state, got in (("a", {"idempotent": True}, "SUCCEEDED", ["C1"]), ("b", {"reply": False}, "IN_DOUBT", [])):
        (folder / name).mkdir()
        async with surroundings(folder / name) as (bridge, gateway):
            first = await command_until_it_dies(bridge, gateway, point, **other)
            assert await commanded_again(bridge, gateway, first, state, **other) == got


async def after_answer_commit(folder):
    async with surroundings(folder) as (bridge, gateway):
        first = await command_until_it_dies(bridge, gateway, CrashPoint.AFTER_ANSWER_COMMIT)
        assert await commanded_again(bridge, gateway, first, "SUCCEEDED") == ["C1"]


async def before_cancel_commit(folder):
    async with surroundings(folder) as (bridge, gateway):
        await gateway.start(CrashPoint.BEFORE_CANCEL_COMMIT)
        asked = durable_command(in_s=600.0)
        await (await bridge.command(asked))
        await bridge.cancel(cancel_request(asked))
        assert await gateway.died()
        async with device(await gateway.start()) as lamp:
            await (await bridge.cancel(cancel_request(asked)))
            await bridge.until(lambda: bridge.replies() == [("C1", "CANCELLED")], "no reply tells of its end")
            await (await bridge.command(asked))
            await lamp.take_commands()
            await lamp.publish(*READING)
            assert lamp.commands == []


LIVES = {
    CrashPoint.BEFORE_COMMIT: before_commit,
    CrashPoint.AFTER_COMMIT_BEFORE_ACK: after_commit_before_ack,
    CrashPoint.AFTER_SEND_BEFORE_SETTLE: after_send_before_settle,
    CrashPoint.BEFORE_SENDING_COMMIT: before_sending_commit,
    CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE: after_sending_commit_before_device,
    CrashPoint.AFTER_ANSWER_COMMIT: after_answer_commit,
    CrashPoint.BEFORE_CANCEL_COMMIT: before_cancel_commit,
}


@pytest.mark.parametrize("point", LIVES)
@pytest.mark.fault("C1", "C2", "C3", "X2", "X3", "X6", "X7")
async def test_the_gateway_dies_at(folder, point):
    await LIVES[point](folder)
    print(f"{point}: died there, and everything is in its place once after the restart")


def test_every_place_is_come_to_in_a_test():
    elsewhere = (BODY_POINTS, BRIDGE_POINTS, BROKER_POINTS, CANCEL_POINTS, DIRECT_POINTS, RESHARD_POINTS, RULE_POINTS)
    assert {*LIVES, *WITH_DEVICE}.union(*elsewhere) == set(CrashPoint)


def test_a_place_that_does_not_exist_is_an_error():
    with pytest.raises(ValueError, match="nowhere"):
        _select("nowhere")
