"""Hostile strangers and clients, all at once, against a real bridge and a real gateway: both live within their memory."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from chaos.protected import protected
from fogline.amqp.driver import connect
from fogline.amqp.engine import Engine
from fogline.amqp.login import PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.errors import FoglineError
from fogline.process.cancellation import end_tasks
from fogline.transport.byte_budget import DEFAULT_BYTES
from fogline_cloud.authority.certificates import Role
from fogline_cloud.bridge.door.handshakes import UNFINISHED_BYTES
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect, Publish, Will
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_lab import amqp_bytes as raw
from fogline_lab.amqp import End, within
from fogline_lab.amqp_bytes import RawAmqp
from fogline_lab.credentials.authority_folder import HERE, PASSWORD, AuthorityFolder
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.line.process_line import ProcessLine
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import encode, puback
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child
from fuzz import live

MIB = 2**20
PAUSE_S = 1.0
GATEWAY_MIB = 280
"""As in the service of the package: a gateway with more leaves."""
SETTINGS = """
tenant = "acme"
gateway = "gw-1"
data = "data"
[uplink]
bridge = "127.0.0.1:1"
retry_s = 60
[mqtt]
port = 0
users = "{users}"
"""
CONNECT = encode(Connect(version=V5, client_id="x", will=Will("event", bytes(60_000))), V5)
SHORT_CONNECT = encode(Connect(version=V5, client_id="x", will=Will("event", bytes(15_000))), V5)
PUBLISH = Publish(topic="telemetry", payload=bytes(250_000), qos=1, packet_id=1).encode(V5)
EXTERNAL = raw.SASL + raw.frame(raw.SASL_INIT, raw.symbol("EXTERNAL"), sasl=True) + raw.AMQP
PIECE = bytes(8000)
STALL_S = 3.0
"""Shorter than Kafka waits for a member of a group."""


@asynccontextmanager
async def attacking(*attacks: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Repeat each of these until the end of the block. What becomes of an attacker is its own concern."""

    async def again(attack: Callable[[], Awaitable[object]]) -> None:
        while True:
            with contextlib.suppress(OSError, FoglineError, ssl.SSLError, AssertionError, TimeoutError):
                await attack()
            await asyncio.sleep(PAUSE_S)  # the attackers share this process with the good client

    tasks = [asyncio.create_task(again(each)) for each in attacks]
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)


async def held(port: int, *data: bytes, count: int, until_s: float = 5.0) -> None:
    """Open sockets, send each of them these bytes, and keep them for a while."""
    writers = []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection(HERE, port, local_addr=("127.0.0.3", 0))
            writers.append(writer)
            writer.write(b"".join(data))
        await asyncio.sleep(until_s)  # it is the attack
    finally:
        for writer in writers:
            writer.transport.abort()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("S7")
async def test_a_gateway_among_hostile_peers_lives_within_its_memory_and_serves_a_good_device(folder):
    """1,000 sockets with unfinished packets, 60 devices with unfinished messages of 250 kB, and guessed passwords."""
    config = folder / "edge.toml"
    config.write_text(SETTINGS.format(users=password_file(folder, hub="one", eve="one")))
    command = [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config, "--max-memory-mib", GATEWAY_MIB]
    program = ChildProcess("gateway", command, folder / "gateway.log")
    try:
        port = int((await start_child(program))["mqtt"].rpartition(":")[2])
        usual = resident_bytes(program.pid)

        def opened(user: str, client: str, password: bytes = b"one") -> bytes:
            return encode(Connect(version=V5, client_id=client, username=user, password=password), V5)

        async def unfinished() -> None:
            wires = []
            try:
                for number in range(60):
                    wire = MqttWire(*await asyncio.open_connection(HERE, port), V5)
                    wires.append(wire)
                    await wire.send(opened("eve", f"eve-{number}"))
                    assert isinstance(await wire.receive(), Connack)
                    await wire.send(PUBLISH[:-1])
            finally:
                for wire in wires:
                    wire.cut()

        async def guess() -> None:
            await held(port, opened("hub", "guess", b"wrong"), count=48, until_s=0.5)

        most, served = usual, 0
        async with attacking(
            lambda: held(port, CONNECT[:-1], count=300),
            lambda: held(port, SHORT_CONNECT[:-1], count=600),
            unfinished,
            guess,
        ):
            async with asyncio.timeout(300):
                while served < 10:
                    served += await good_device(port, opened("hub", "good"))
                    most = max(most, resident_bytes(program.pid))
        print(f"a gateway with {usual / MIB:.0f} MiB has {most / MIB:.0f} MiB among hostile peers, and serves")
        assert program.running
        assert most - usual < DEFAULT_BYTES + 100 * MIB, "the budget, and a thousand connections"
        assert live.unhandled(program.log.read_text("utf-8", "replace")) == []
    finally:
        await kill_child(program)


async def good_device(port: int, connect_packet: bytes) -> bool:
    """Log in from another address, and publish. Returns False if the gateway is too busy to check the password."""
    wire = MqttWire(*await within(asyncio.open_connection(HERE, port, local_addr=("127.0.0.2", 0)), "no connection"), V5)
    try:
        await wire.send(connect_packet)
        if not isinstance(connack := await wire.receive(), Connack) or connack.code:
            assert isinstance(connack, Connack), "a device of another address loses its place"
            return False
        await wire.publish("telemetry", bytes(200_000))
        assert await wire.receive() == puback(1)
        return True
    finally:
        wire.cut()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("S7")
async def test_bridge_among_hostile_peers_stays_within_its_memory_and_serves_authenticated_peers(kafka, tenant, folder):
    """600 silent sockets, guessed passwords, and a client with 107 MB of messages that it does not finish."""
    site = ProcessLine(tenant, folder, kafka.bootstrap, shards=2)
    authority = AuthorityFolder(folder, tenant)
    bridge, other = protected(site, authority), protected(site, authority, "b-2")
    context, eve = authority.context(), authority.client(Role.OPERATOR, "eve")
    try:
        await start_child(bridge)
        await start_child(other)
        owners = await site.shared("b-1", "b-2")
        port, name = site.ports["b-1"], site.gateway_of(next(shard for shard, owner in owners.items() if owner == "b-1"))
        good = authority.files(Role.GATEWAY, name)
        await site.time_a_gateway(name=name, tls=good)
        usual = resident_bytes(bridge.pid)

        most = usual
        attacks = [
            *[partial(held, port, count=300)] * 2,
            *[partial(log_in, context, tenant, port, "nobody", "guess")] * 12,
            *[partial(leave_unfinished, port, tenant, eve)] * 16,
            partial(stall, other),
            *[partial(send_to_unknown_devices, port, tenant, eve)] * 4,
        ]
        async with attacking(*attacks):
            for _ in range(2):
                await site.time_a_gateway(name=name, tls=good)
                most = max(most, resident_bytes(bridge.pid))
                async with asyncio.timeout(120):
                    while not await log_in(context, tenant, port, "alice", PASSWORD):
                        most = max(most, resident_bytes(bridge.pid))
        print(f"a bridge with {usual / MIB:.0f} MiB has {most / MIB:.0f} MiB among hostile peers, and serves")
        assert bridge.running
        assert most - usual < 2 * UNFINISHED_BYTES + 150 * MIB, "the budget, with what Python's memory loses, and connections"
        assert live.unhandled(bridge.log.read_text("utf-8", "replace")) == []
    finally:
        await site.close()


async def leave_unfinished(port: int, tenant: str, security: ClientSecurity) -> None:
    """Begin seven messages of a megabyte, and end none."""
    reader, writer = await asyncio.open_connection(HERE, port, ssl=security.tls)
    peer = RawAmqp(reader, writer)
    try:
        await peer.send(EXTERNAL + raw.frame(raw.OPEN, raw.text("eve")))
        await peer.send(b"".join(attached(number, tenant) for number in range(8)))
        await within(peer.until(b"\x00S" + bytes([raw.FLOW])), "no credit")
        for number in range(7):
            for at in range(120):
                await peer.send(piece(number, first=at == 0))
        await peer.end()
    finally:
        writer.transport.abort()


async def stall(other: ChildProcess) -> None:
    """Stop the other bridge for a while: it answers nothing."""
    other.send(signal.SIGSTOP)
    try:
        await asyncio.sleep(STALL_S)  # it is the attack
    finally:
        other.send(signal.SIGCONT)


async def send_to_unknown_devices(port: int, tenant: str, security: ClientSecurity) -> None:
    """Send 25 MB of commands to devices that this bridge does not know: it asks the other one."""
    async with Operator(HERE, port, tenant, name="eve", security=security) as operator:
        asks = [Ask(f"nobody-{number}", "switch", data=bytes(250_000), ttl_s=600) for number in range(100)]
        tasks = [asyncio.create_task(operator.request(each)) for each in asks]
        try:
            await asyncio.wait(tasks, timeout=STALL_S)
        finally:
            await end_tasks(*tasks)


def attached(number: int, tenant: str) -> bytes:
    """A session for the first link, and a link to events on this handle."""
    whole = raw.attaching(f"event/{tenant}/meter-1")
    session = raw.frame(raw.BEGIN, raw.NULL, raw.uint(0), raw.uint(2**31 - 1), raw.uint(2**31 - 1))
    link = whole[len(session) :].replace(raw.text("raw"), raw.text(f"ra{number}"), 1)
    link = link.replace(raw.uint(0), raw.uint(number), 1)
    return (session if number == 0 else b"") + link


def piece(number: int, *, first: bool) -> bytes:
    """A piece of a message on this handle that does not end."""
    head = [raw.uint(number), b"\xa0\x01a", raw.uint(0), b"\x42"] if first else [raw.NULL] * 4
    return raw.frame(raw.TRANSFER, raw.uint(number), *head, b"\x41", payload=PIECE)


async def log_in(context: ssl.SSLContext, tenant: str, port: int, user: str, password: str) -> bool:
    """Log in by a password. Returns False if the bridge is too busy; says so if the right one is wrong."""
    peer = End()
    security = ClientSecurity(Login(PLAIN, user, password), context)
    engine = Engine(user, hostname=HERE, properties={"tenant": tenant}, security=security)
    connection = await connect(HERE, port, engine, peer)
    try:
        waits = [asyncio.ensure_future(each.wait()) for each in (peer.is_open, peer.is_closed)]
        await within(asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED), "no answer", 60)
        for each in waits:
            each.cancel()
        assert user == "nobody" or "refuses the password" not in peer.why, peer.why
        return peer.is_open.is_set()
    finally:
        connection.abort()
