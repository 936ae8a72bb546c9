"""AMQP over WebSocket between gateway and bridge: what counts at the bridge's other door counts here."""

import asyncio
import gc
import ssl
from contextlib import ExitStack, asynccontextmanager, suppress
from math import inf
from random import Random

import pytest
from msgspec.structs import replace

from e2e.enrolling import token_of
from fogline.amqp.client import AmqpClient
from fogline.amqp.driver import open_connections
from fogline.amqp.login import EXTERNAL, PLAIN, Login
from fogline.amqp.security import ClientSecurity
from fogline.commands.command import CommandState
from fogline.errors import Unreachable
from fogline.process.checkup import Grade
from fogline.process.files.tls_files import client_context
from fogline.transport.proxy.proxy_address import ProxyKind
from fogline.transport.websocket_request import WebSocketRequest
from fogline_cloud.authority.certificates import Role
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.operate.doctor import diagnose
from fogline_edge.operate.enrolment import enroll, renew
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import ProxySettings, load
from fogline_lab.amqp import within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.kafka_broker import free_port
from fogline_lab.line.line import gateway, serving
from fogline_lab.line.secure_line import secure
from fogline_lab.site_proxy import SiteProxy
from fogline_lab.tcp_line import LineFault, PlannedFault, TcpLine
from fogline_lab.waiting import until

CUTS = 8


@pytest.fixture
def open_at_443(line):
    """A tenant with TLS, whose bridge has a second door for WebSocket, which its gateways use."""
    line, site = secure(line)
    port = free_port()
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, websocket=f"{HERE}:{port}"))
    line.bridges = [f"wss://{HERE}:{port}/amqp"]
    return line, site, port


@asynccontextmanager
async def connected_at(line, bridge, uplink_proxy=None):
    """A gateway with its uplink to one address. Yields outbox and uplink."""
    outbox = Outbox.open(line.settings())
    settings = replace(line.settings().uplink, bridge=bridge, proxy=uplink_proxy)
    async with line.uplink(outbox, settings=settings) as uplink:
        yield outbox, uplink
    await outbox.close()


async def test_events_land_and_commands_are_answered_over_websocket(open_at_443):
    line, site, _ = open_at_443
    async with serving(line) as bridge, gateway(line) as (outbox, downlink):
        device = CommandDevice(downlink)
        downlink.reachable("lamp-1", device)
        await line.put(outbox, *range(200))
        await line.drained(outbox)
        assert bridge.gateways.get("gw-1").principal.proof == "certificate"
        security = site.client(Role.OPERATOR, "alice")
        async with Operator(HERE, line.port, line.tenant, name="alice", security=security) as operator:
            await within(operator.attached(), "the operator cannot attach")
            for durable in (True, False):
                verdict = await within(operator.request(Ask("lamp-1", "switch", b"{}", durable=durable)), "no answer")
                assert verdict.state is CommandState.SUCCEEDED
        assert len(device.ran) == 2
    assert line.landed() == list(range(200))


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", list(ProxyKind))
async def test_events_land_once_over_websocket_through_a_proxy_that_cuts(open_at_443, folder, kind):
    """N10: frames are cut in the middle, again and again; what was acknowledged lands once."""
    line, _, _ = open_at_443
    chance = Random(39)
    with ExitStack() as stack:
        site = stack.enter_context(SiteProxy(folder, kind))
        async with line.bridge(), TcpLine(site.port) as way:
            way.plan = lambda: (
                PlannedFault(LineFault.RESET, chance.randrange(30_000, 120_000), inf) if len(way.failed) < CUTS else None
            )
            proxy = ProxySettings(url=f"{kind}://{HERE}:{way.port}")
            async with connected_at(line, line.bridges, proxy) as (outbox, _):
                bodies = {n: b'{"n": %d, "more": "%s"}' % (n, chance.randbytes(3000).hex().encode()) for n in range(400)}
                await asyncio.gather(*(line.put(outbox, n, data=body) for n, body in bodies.items()))
                await line.drained(outbox)
            assert len(way.failed) == CUTS
    assert line.landed() == list(range(400))


async def test_a_gateway_enrols_renews_and_is_diagnosed_over_websocket(issuing, folder):
    line, site = issuing
    port = free_port()
    line.cloud = replace(line.cloud, bridge=replace(line.cloud.bridge, websocket=f"{HERE}:{port}"))
    async with line.bridge() as bridge:
        config = await asyncio.to_thread(enroll, token_of(site), f"wss://{HERE}:{port}/amqp", folder / "pi")
        settings = load(config)
        await asyncio.to_thread(renew, settings)
        findings = await asyncio.to_thread(lambda: list(diagnose(config)))
        assert not [each for each in findings if each.grade is Grade.FAIL], findings
        assert f"wss://{HERE}:{port}/amqp answers over TLS" in [each.text for each in findings]
        outbox = Outbox.open(settings)
        async with line.uplink(outbox, settings=settings.uplink):
            await line.put(outbox, *range(10))
            await line.drained(outbox)
            assert bridge.gateways.get("gw-9").principal.proof == "certificate"
        await outbox.close()
        other = folder / "other.toml"
        other.write_text(config.read_text().replace(f"wss://{HERE}:{port}/amqp", f"wss://{HERE}:{line.port}/amqp"))
        (folder / "ca.pem").write_bytes((folder / "pi" / "ca.pem").read_bytes())
        (folder / "gateway.pem").write_bytes((folder / "pi" / "gateway.pem").read_bytes())
        (folder / "gateway.pem").chmod(0o600)
        failed = [each for each in await asyncio.to_thread(lambda: list(diagnose(other))) if each.grade is Grade.FAIL]
    assert [each.subject for each in failed] == ["bridge"]
    assert line.landed() == list(range(10))


def client(port, security, path="/amqp"):
    return AmqpClient("gw-1", {"tenant": "acme"}, replace(security, websocket=WebSocketRequest(f"{HERE}:{port}", path)))


async def refusal(port, security):
    with pytest.raises(Unreachable) as refused:
        async with client(port, security) as visitor:
            await within(visitor.open(HERE, port), "neither open nor refused")
    return str(refused.value)


@pytest.mark.fault("X3")
async def test_a_login_that_does_not_count_at_the_other_door_does_not_count_here(open_at_443):
    line, site, port = open_at_443
    trusted = site.context()
    async with line.bridge():
        nobody = await refusal(port, ClientSecurity(Login(), trusted))
        wrong = await refusal(port, ClientSecurity(Login(PLAIN, "alice", "wrong"), trusted))
        revoked = site.files(Role.OPERATOR, "bob")
        unseen = await refusal(port, ClientSecurity(Login(EXTERNAL), trusted))
        async with client(port, ClientSecurity(Login(PLAIN, "alice", PASSWORD), trusted)) as alice:
            await within(alice.open(HERE, port), "a right password is not accepted")
        async with client(port, ClientSecurity(Login(EXTERNAL), client_context(revoked, "client"))) as bob:
            await within(bob.open(HERE, port), "a certificate is not accepted")
    assert "not ANONYMOUS" in nobody
    assert "refuses the password of alice" in wrong
    assert "The peer has seen no certificate: TLS must reach it, so no proxy between may end TLS" in unseen


@pytest.mark.fault("N9")
async def test_sockets_that_are_silent_or_speak_something_else_are_closed_and_a_gateway_is_served(open_at_443, monkeypatch):
    """Before TLS, within its handshake, within that of WebSocket, and after it."""
    monkeypatch.setattr("fogline.amqp.driver.HANDSHAKE_S", 1.0)
    line, site, port = open_at_443
    context = site.context()
    begun = [b"", b"\x16\x03\x01", b"AMQP\x03\x01\x00\x00", b"GET /amqp HTTP/1.1\r\n"]
    inside = [
        b"",
        b"GET /amqp HTTP/1.1\r\nHost: x\r\n",
        b"AMQP\x03\x01\x00\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(20_000),
    ]
    async with line.bridge() as bridge:
        plain = [await asyncio.open_connection(HERE, port) for _ in begun * 20]
        secure_ones = [await asyncio.open_connection(HERE, port, ssl=context) for _ in inside * 20]
        for (_, writer), data in zip(plain, begun * 20, strict=True):
            writer.write(data)
        for (_, writer), data in zip(secure_ones, inside * 20, strict=True):
            writer.write(data)
        async with connected_at(line, line.bridges) as (outbox, _):
            await line.put(outbox, *range(10))
            await line.drained(outbox)
        for reader, writer in plain + secure_ones:
            with suppress(ConnectionError, ssl.SSLError):
                await within(reader.read(), "a silent socket stays open")
            writer.close()
        await until(lambda: not len(bridge.listener.handshakes), "a handshake is left over")
        gc.collect()
    assert not open_connections()
    assert line.landed() == list(range(10))
