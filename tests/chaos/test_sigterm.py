"""SIGTERM at each crash point, and at the moment at which connections end: the process ends in its time, with status 0.

The tests marked slow are 300 tries in all.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from chaos.places_to_crash import (
    BODY_POINTS,
    BRIDGE_POINTS,
    BROKER_POINTS,
    CANCEL_POINTS,
    DIRECT_POINTS,
    RESHARD_POINTS,
    RULE_POINTS,
)
from fogline.amqp.backoff import Backoff
from fogline.commands.cancel import CancelRequest
from fogline.commands.command import Deadline, digest
from fogline.commands.signature import TrustedKeys
from fogline.errors import FoglineError
from fogline.process.cancellation import end_tasks
from fogline.process.crash_points import STOP_VARIABLE, CrashPoint
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.adapters.mqtt.protocol.packets import PacketType
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.machine.boot import beacon
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import EdgeSettings, UplinkSettings
from fogline_edge.uplink.uplink import Uplink
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.commands import make_command
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.events import make_arrival
from fogline_lab.gateway.gateway_process import GatewayProcess
from fogline_lab.large_bodies import make_body
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child
from sampling import a_few

LIMIT_S = 60.0
LARGE = 1024 * 1024
GATEWAY = (
    *BODY_POINTS,
    CrashPoint.AFTER_COMMIT_BEFORE_ACK,
    CrashPoint.AFTER_SEND_BEFORE_SETTLE,
    CrashPoint.BEFORE_SENDING_COMMIT,
    CrashPoint.AFTER_SENDING_COMMIT_BEFORE_DEVICE,
    CrashPoint.AFTER_ANSWER_COMMIT,
    CrashPoint.BEFORE_CANCEL_COMMIT,
)
BRIDGE = (*BRIDGE_POINTS, *DIRECT_POINTS, *CANCEL_POINTS, CrashPoint.BEFORE_VERDICT_COMMIT)
DELAYS_MS = (0.0, 0.3, 0.6, 1.0, 1.5, -0.3, -0.6, -1.0)
"""SIGTERM so long after the end of the connections; negative: before it."""


async def ends_with_0(process: ChildProcess, traffic: Coroutine[Any, Any, None] | None = None) -> None:
    """Wait for the end of a process that has stopped itself, with traffic until then."""
    busy = asyncio.create_task(traffic, name="traffic") if traffic is not None else None
    try:
        assert await asyncio.to_thread(process.wait, LIMIT_S) == 0, process.end
    finally:
        if busy is not None:
            await end_tasks(busy)
            if not busy.cancelled():
                busy.result()


class StoppingGateway(GatewayProcess):
    """A gateway process that stops itself at `point`. `process`: that process."""

    def __init__(self, folder: Path, bridge: int, point: str = "") -> None:
        super().__init__(folder, bridge)
        self.process = self._process
        self.process.environment[STOP_VARIABLE] = point


class CuttableBridge(AcceptingBridge):
    """A bridge that can cut its connections."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: list[Any] = []

    def opened(self, connection: Any, peer: Any) -> None:
        super().opened(connection, peer)
        self.connections.append(connection)

    def cut(self) -> None:
        for each in self.connections:
            each.abort()
        self.connections.clear()


@asynccontextmanager
async def closing(there: MqttLamp):
    try:
        yield
    finally:
        await there.close()


async def use_gateway(bridge: AcceptingBridge, port: int) -> None:
    """A command that is cancelled; then a device reports, sends a large body, gets a command, and answers it."""
    now = beacon()
    deadline = Deadline(now.boot_id, now.boottime_ms + 600_000)
    waits, runs = (make_command(id=name, durable=True, deadline=deadline) for name in ("C1", "C2"))
    with suppress(ConnectionError, FoglineError):
        await (await bridge.command(waits))
        request = CancelRequest(
            id=waits.id,
            tenant=waits.tenant,
            gateway=waits.gateway,
            device=waits.device,
            name=waits.name,
            digest=digest(waits),
            deadline=deadline,
        )
        await (await bridge.cancel(request))
        there = MqttLamp()
        await there.connect(port)
        async with closing(there):
            await there.publish("telemetry", b'{"n": 1}')
            await there.publish("telemetry", make_body(1, LARGE))
            await there.take_commands()
            await bridge.command(runs)
            await there.until(PacketType.PUBLISH)
            await there.publish("command///res/C2/200", b"done")
            await there.until(PacketType.DISCONNECT)


@pytest.mark.parametrize("point", a_few(GATEWAY, CrashPoint.AFTER_SEND_BEFORE_SETTLE))
@pytest.mark.fault("C15")
async def test_a_gateway_that_gets_sigterm_at_a_crash_point_ends_with_status_0(folder, point):
    bridge = AcceptingBridge()
    gateway = StoppingGateway(folder, await bridge.serve(), point)
    try:
        await ends_with_0(gateway.process, use_gateway(bridge, await gateway.start()))
    finally:
        await kill_child(gateway.process)
        bridge.close()


async def cut_and_stop(folder: Path, tries: int) -> None:
    for number, delay_ms in zip(range(tries), itertools.cycle(DELAYS_MS), strict=False):
        bridge, place = CuttableBridge(), folder / str(number)
        place.mkdir()
        gateway = StoppingGateway(place, await bridge.serve())
        try:
            port = await gateway.start()
            there = MqttLamp()
            await there.connect(port)
            async with closing(there):
                await there.publish("telemetry", b'{"n": 1}')
                await bridge.until(bridge.events, "the event does not arrive")
                await stop_around(gateway.process, bridge.cut, delay_ms)
                await ends_with_0(gateway.process)
        finally:
            await kill_child(gateway.process)
            bridge.close()


async def stop_around(process: ChildProcess, cut: Any, delay_ms: float) -> None:
    """Cut connections, and send SIGTERM so long afterwards, or before."""
    if delay_ms < 0:
        process.send(signal.SIGTERM)
        await asyncio.sleep(-delay_ms / 1000)
        cut()
    else:
        cut()
        await asyncio.sleep(delay_ms / 1000)
        process.send(signal.SIGTERM)


@pytest.mark.fault("C15")
async def test_a_gateway_that_gets_sigterm_while_its_uplink_ends_ends_with_status_0(folder):
    await cut_and_stop(folder, 4)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.fault("C15")
async def test_a_gateway_that_gets_sigterm_while_its_uplink_ends_ends_with_status_0_many_times(folder):
    await cut_and_stop(folder, 256)


class Users:
    """A gateway with a device, and an operator, of a bridge: both come back whenever their connection ends."""

    def __init__(self, site: ProcessLine) -> None:
        self.port = site.ports["bridge-1"]
        self.tenant = site.tenant
        self.uplink = UplinkSettings(bridge=f"127.0.0.1:{self.port}", statement_s=0.5)
        self.settings = EdgeSettings(tenant=site.tenant, gateway="gw-1", data=str(site.folder / "gw-users"), uplink=self.uplink)
        self.downlink: Downlink

    @asynccontextmanager
    async def there(self):
        outbox = Outbox.open(self.settings)
        self.downlink = Downlink(outbox, TrustedKeys())
        await self.downlink.start()
        serving = asyncio.create_task(Uplink(outbox, self.uplink, self.downlink.received, Backoff(0.05, 0.2)).run())
        sending = asyncio.create_task(self.send(outbox))
        try:
            yield
        finally:
            await end_tasks(sending, serving)
            self.downlink.close()
            await outbox.close()

    async def send(self, outbox: Outbox) -> None:
        for number in itertools.count(1):
            outbox.port.put(make_arrival(number), lambda _: None)
            await asyncio.sleep(0.02)

    async def command(self) -> None:
        """Durable and direct commands, and cancellations, for a device that comes and goes."""
        device = CommandDevice(self.downlink)
        async with Operator("127.0.0.1", self.port, self.tenant, name="op-1") as operator:
            for number in itertools.count(1):
                self.downlink.unreachable("lamp-1", device)
                for ask in (
                    Ask("lamp-1", "switch", ttl_s=600, message_id=f"waits-{number}"),
                    Ask("lamp-1", "switch", ttl_s=600, durable=False, message_id=f"direct-{number}"),
                ):
                    asked = asyncio.create_task(operator.request(ask))
                    await asyncio.wait({asked}, timeout=0.2)
                    await asyncio.wait({task := asyncio.create_task(operator.cancel(message_id=ask.message_id))}, timeout=1)
                    await end_tasks(task, asked)
                self.downlink.reachable("lamp-1", device)
                for durable in (True, False):
                    asked = asyncio.create_task(operator.request(Ask("lamp-1", "switch", ttl_s=600, durable=durable)))
                    await asyncio.wait({asked}, timeout=1)
                    await end_tasks(asked)


def stopping(site: ProcessLine, point: str) -> ChildProcess:
    """The bridge process of a site, which stops itself at `point`."""
    bridge = site.bridge("bridge-1")
    bridge.environment[STOP_VARIABLE] = point
    return bridge


@pytest.mark.parametrize("point", a_few(BRIDGE, CrashPoint.IN_TRANSACTION))
@pytest.mark.fault("C15")
async def test_a_bridge_that_gets_sigterm_at_a_crash_point_ends_with_status_0(kafka, tenant, folder, point):
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    bridge = stopping(site, point)
    users = Users(site)
    try:
        bridge.start()
        async with users.there():
            await ends_with_0(bridge, users.command())
    finally:
        await kill_child(bridge)
        await site.close()


async def stop_bridge_beside_ends(site: ProcessLine, tries: int) -> None:
    bridge = stopping(site, "")
    for number in range(tries):
        users = Users(site)
        await start_child(bridge, LIMIT_S)
        commanding = None
        async with users.there():
            commanding = asyncio.create_task(users.command())
            await asyncio.sleep(0.05 * (number % 8))
        commanding.cancel()  # its connections end while the bridge stops
        bridge.send(signal.SIGTERM)
        await ends_with_0(bridge)
        await end_tasks(commanding)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("C15")
async def test_a_bridge_that_gets_sigterm_while_its_peers_leave_ends_with_status_0(kafka, tenant, folder):
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        await stop_bridge_beside_ends(site, 12)
    finally:
        await kill_child(site.bridge("bridge-1"))
        await site.close()


def api_process(site: ProcessLine, folder: Path) -> ChildProcess:
    config = folder / "api.toml"
    config.write_text(
        f'tenant = "{site.tenant}"\nshards = {site.shards}\n[kafka]\n"bootstrap.servers" = "{site.bootstrap}"\n'
        f'[operator]\nbridge = "127.0.0.1:1"\n[api]\nlisten = "127.0.0.1:0"\n'
    )
    command = [find_script("fogline"), "api", "run", "--insecure-dev", "--config", config]
    return ChildProcess("api", command, folder / "api.log")


async def stop_api_beside_ends(site: ProcessLine, folder: Path, tries: int) -> None:
    for number in range(tries):
        api = api_process(site, folder)
        ready = await start_child(api, LIMIT_S)
        host, _, port = ready["url"].removeprefix("http://").partition(":")
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        try:
            requests = (
                b"GET /v1/events/stream HTTP/1.1\r\nhost: a\r\n\r\n",
                b"GET /v1/commands HTTP/1.1\r\n",
                b"",
                b"POST / HTTP/1.1\r\n",
            )
            for (_, writer), request in zip(clients, requests, strict=True):
                writer.write(request)
                await writer.drain()

            def cut(clients: Any = clients) -> None:
                for _, writer in clients:
                    writer.transport.abort()

            await stop_around(api, cut, DELAYS_MS[number % len(DELAYS_MS)])
            await ends_with_0(api)
        finally:
            await kill_child(api)


@pytest.mark.parametrize("tries", [1, pytest.param(18, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
@pytest.mark.fault("C15")
async def test_an_api_that_gets_sigterm_while_its_clients_leave_ends_with_status_0(kafka, tenant, folder, tries):
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    try:
        await stop_api_beside_ends(site, folder, tries)
    finally:
        await site.close()


def test_every_crash_point_is_one_of_the_gateway_or_of_the_bridge_or_of_what_others_stop():
    assert {*GATEWAY, *BRIDGE, *BROKER_POINTS, *RULE_POINTS, *RESHARD_POINTS} == set(CrashPoint)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("C15")
@pytest.mark.parametrize("when", ["ready", "reading"])
async def test_a_flow_whose_process_group_gets_sigterm_ends_with_status_0_and_without_a_stack_of_java(
    kafka, tenant, folder, when
):
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=1)
    config = folder / "flow.toml"
    config.write_text(
        f'tenant = "{tenant}"\nshards = 1\n[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        f'[flow]\ntables = "{folder / "tables"}"\ncheckpoint = "{folder / "checkpoint"}"\n'
    )
    log = folder / "flow.log"
    flow = ChildProcess("flow", [find_script("fogline"), "flow", "run", "--config", config, "--json"], log)
    bridge = site.bridge("bridge-1")
    try:
        await start_child(bridge, LIMIT_S)
        users = Users(site)
        async with users.there():
            await start_child(flow, 300.0)
            if when == "reading":
                await asyncio.to_thread(flow.next_line, 120.0)
            os.killpg(flow.pid, signal.SIGTERM)
            assert await asyncio.to_thread(flow.wait, 2 * LIMIT_S) == 0, flow.end
        text = log.read_text()
        assert "Traceback" not in text
        assert "\tat " not in text, "a stack of Java"
    finally:
        await kill_child(flow)
        await kill_child(bridge)
        await site.close()
