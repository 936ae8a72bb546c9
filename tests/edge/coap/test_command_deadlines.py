"""A command to a CoAP device is not retransmitted after its deadline."""

import asyncio
import socket

import pytest

from edge.coap.client import request
from fogline.commands.command import Deadline
from fogline_edge.adapters.coap.wire import CoapMessage, Code, MessageType, Option, decode, uint
from fogline_edge.machine.boot import beacon
from fogline_edge.settings import ServingSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort

LIMIT_S = 60.0
POLL = request("telemetry/acme/lamp-1", query=["hono-ttd=60"])
OBSERVE = request("command/acme/lamp-1", b"", code=Code.GET, options=[(int(Option.OBSERVE), uint(0))])


def make(number=1, in_ms=60_000):
    now = beacon()
    return make_command(id=f"CMD-{number}", deadline=Deadline(now.boot_id, now.boottime_ms + in_ms), data=b"%d" % number)


@pytest.mark.fault("X8")
@pytest.mark.parametrize("asks", [POLL, OBSERVE], ids=["poll", "observation"])
async def test_a_command_that_is_not_acknowledged_is_not_sent_again_after_its_deadline(listening, dial, asks):
    """The deadline is past at the first retransmission, although nobody has told the adapter yet."""
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands, ack_timeout_s=0.1) as listener:
        with dial(listener) as wire:
            wire.send(asks)
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
            commands.send(make(in_ms=50))
            await commands.until(lambda: commands.told == [("lost", "CMD-1")], "its retransmission ends", LIMIT_S)
            found = [await wire.receive(), await wire.receive()]
            assert [each.payload for each in found if each.kind == MessageType.CON and each.payload] == [b"1"]
            await wire.alive()  # and nothing else has come


@pytest.mark.parametrize("asks", [POLL, OBSERVE], ids=["poll", "observation"])
async def test_a_command_past_its_deadline_is_not_sent(listening, dial, asks):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener:
        with dial(listener) as wire:
            wire.send(asks)
            await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
            commands.send(make(in_ms=0))
            assert commands.told == [("not_sent", "CMD-1")]


@pytest.mark.fault("X8")
async def test_a_command_to_a_server_that_is_abandoned_is_not_sent_again(listening):
    """The device acknowledges nothing. A later command shows that retransmissions would have come."""
    commands = MemoryCommands()
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        device.setblocking(False)
        device.bind(("127.0.0.1", 0))
        uri = f"coap://127.0.0.1:{device.getsockname()[1]}/do"
        serving = [ServingSettings(device="lamp-1", uri=uri)]
        async with listening(MemoryPort(), commands, devices=serving, ack_timeout_s=0.05), asyncio.timeout(LIMIT_S):
            executor = commands.devices["lamp-1"]
            commands.send(make(0, in_ms=0))
            assert commands.told == [("not_sent", "CMD-0")]
            first = make(1)
            commands.send(first)
            assert decode(await loop.sock_recv(device, 2000)).payload == b"1"
            executor.abandon(first)
            await commands.until(lambda: commands.told[-1] == ("lost", "CMD-1"), "it is given up")
            commands.known["CMD-2"] = "lamp-1"
            executor.execute(make(2))
            found: list[CoapMessage] = []
            while sum(each.payload == b"2" for each in found) < 4:
                found.append(decode(await loop.sock_recv(device, 2000)))
            assert {each.payload for each in found} == {b"2"}
