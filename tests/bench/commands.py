"""A direct command there and back: operator -> bridge -> gateway -> MQTT device -> and the answer the same way."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from device import Device
from http_request import HttpConnection
from processes import Bench, Failed, quantile

from fogline.commands.command import CommandState
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.operate.status import read_status
from fogline_lab.tcp_line import TcpLine

SHARDS = 2
BACKLOG_BYTES = 20_000_000
PAYLOAD_BYTES = 16_000
IN_FLIGHT = 32
WARM = 50
"""Commands before those that are timed: a broker of Kafka that has just started is several times as slow."""
DEVICES = 1000
LIMIT_S = 60.0


@dataclass(frozen=True)
class Case:
    """So many commands through one gateway, a new one each `every_s`, or at once when the one before is answered.

    `bits_per_s`: of the line between gateway and bridge, `None` for no limit.
    """

    name: str
    bits_per_s: float | None
    commands: int
    every_s: float = 0.0
    events_s: int = 0  # beside the commands
    http: bool = False


EVERY_S = 0.1
"""On an idle line nothing is left to do for the command before: without this time, Kafka still commits that one's records."""
CASES = (
    Case("idle", None, 200, every_s=EVERY_S),
    Case("http", None, 200, every_s=EVERY_S, http=True),
    Case("busy", None, 200, every_s=EVERY_S, events_s=2000),
    Case("series", None, 200),
    Case("busy_series", None, 200, events_s=2000),
    Case("10mbit", 10e6, 60),
    Case("1mbit", 1e6, 60),
)


def measure(bench: Bench) -> dict[str, float]:
    """Each case with a gateway of its own, all on one bridge."""
    tenant = f"commands{bench.number}"
    found = {}
    cloud = bench.cloud(tenant, SHARDS)
    with bench.bridge(cloud) as (_, port), bench.api(cloud, port) as (_, http_port):
        for each in CASES:
            bench.say(f"commands, {each.name}")
            taken_s = asyncio.run(round_trips(bench, tenant, port, each, http_port))
            found |= {f"commands.{each.name}_p{percent}": quantile(taken_s, percent / 100) * 1000 for percent in (50, 99)}
        found["commands.http_more"] = found["commands.http_p50"] - found["commands.idle_p50"]
        bench.say("commands, many open")
        found["commands.many_s"] = asyncio.run(many(bench, tenant, port))
    return found


async def many(bench: Bench, tenant: str, bridge_port: int) -> float:
    """Seconds from the first verdict to the last of commands to as many devices, all open at a time."""
    async with AsyncExitStack() as stack:
        _, mqtt_port = stack.enter_context(bench.gateway("gw-many", bridge_port, tenant))
        operator = await stack.enter_async_context(Operator("127.0.0.1", bridge_port, tenant))
        names = [f"many-{number}" for number in range(DEVICES)]
        for name in names:
            device = await stack.enter_async_context(connected(mqtt_port, name))
            await device.take_commands()
            await device.publish("telemetry", b"1")
        await until_reached(operator, names[-1])
        ended_s: list[float] = []

        async def one(name: str) -> None:
            await command(operator, name)
            ended_s.append(time.monotonic())

        await asyncio.gather(*map(one, names))
    return ended_s[-1] - ended_s[0]


async def round_trips(bench: Bench, tenant: str, bridge_port: int, case: Case, http_port: int) -> list[float]:
    """Seconds of each command. None begins before the one before is answered."""
    gateway, lamp = f"gw-{case.name}", f"lamp-{case.name}"
    async with AsyncExitStack() as stack:
        port = bridge_port
        if case.bits_per_s:
            port = (await stack.enter_async_context(TcpLine(bridge_port, bits_per_s=case.bits_per_s))).port
        _, mqtt_port = stack.enter_context(bench.gateway(gateway, port, tenant))
        device = await stack.enter_async_context(connected(mqtt_port, lamp))
        operator = await stack.enter_async_context(Operator("127.0.0.1", bridge_port, tenant))
        await device.take_commands()
        await device.publish("telemetry", b'{"on": true}')
        await until_reached(operator, lamp)
        if case.bits_per_s:
            await fill(bench, gateway, mqtt_port)
        if case.events_s:
            seconds = case.commands // 10 + 90
            load = mqtt_port, 1, 100, case.events_s * seconds, case.events_s, 100, 500
            publisher = stack.enter_context(bench.child("load", *bench.program("mqtt_load"), *load))
            publisher.next_line()
            publisher.tell("go")
            await asyncio.sleep(3)  # a rate cannot be waited for
        for _ in range(0 if case.bits_per_s else WARM):
            await command(operator, lamp)
        if case.http:
            http = HttpConnection(http_port)
            await http.open()
            stack.push_async_callback(http.close)
            send = partial(http_command, http, lamp)
        else:
            send = partial(command, operator, lamp)
        taken_s = []
        for _ in range(case.commands):
            taken_s.append(await send())
            await asyncio.sleep(max(0.0, case.every_s - taken_s[-1]))
        if case.bits_per_s and not backlog(bench, gateway):
            raise Failed(f"{gateway}: the backlog was over before the last command")
    return taken_s


@asynccontextmanager
async def connected(port: int, name: str) -> AsyncIterator[Device]:
    """A device, for the length of a block."""
    device = Device()
    await device.connect(port, name)
    try:
        yield device
    finally:
        await device.close()


async def command(operator: Operator, device: str) -> float:
    """Seconds until the device's answer is there."""
    began = time.monotonic()
    verdict = await asyncio.wait_for(operator.request(Ask(device, "ping", durable=False)), LIMIT_S)
    if verdict.state is not CommandState.SUCCEEDED:
        raise Failed(f"a command ended as {verdict.state}: {verdict.status} {verdict.why}")
    return time.monotonic() - began


async def http_command(http: HttpConnection, device: str) -> float:
    """Seconds until the response has the device's answer."""
    began = time.monotonic()
    request = http.post(f"/v1/devices/{device}/commands?wait=30s", {"name": "ping", "durable": False})
    status, found = await asyncio.wait_for(request, LIMIT_S)
    if (status, found.get("state")) != (201, CommandState.SUCCEEDED):
        raise Failed(f"a command over HTTP ended with {status}: {found}")
    return time.monotonic() - began


async def until_reached(operator: Operator, device: str) -> None:
    """Until the bridge knows the way to the device."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            await command(operator, device)
        except Failed:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


async def fill(bench: Bench, gateway: str, port: int) -> None:
    """Bytes that cannot be compressed, until so many wait in the outbox."""
    wanted = BACKLOG_BYTES // PAYLOAD_BYTES + 1
    async with connected(port, f"{gateway}-bulk") as device:
        while (missing := wanted - backlog(bench, gateway)) > 0:
            for _ in range(0, missing, IN_FLIGHT):
                await asyncio.gather(*(device.publish("telemetry", os.urandom(PAYLOAD_BYTES)) for _ in range(IN_FLIGHT)))


def backlog(bench: Bench, gateway: str) -> int:
    """Events that wait in the outbox."""
    return int(read_status(bench.folder / gateway / "data")["backlog"])
