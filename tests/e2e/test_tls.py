"""Gateways and operators prove their names over TLS; whoever does not is refused with a line that says why."""

import contextlib
import logging
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from fogline.amqp.backoff import Backoff
from fogline.amqp.driver import AmqpConnection, connect, listen
from fogline.amqp.engine import Engine
from fogline.amqp.login import EXTERNAL, PLAIN, Login
from fogline.amqp.security import ClientSecurity, ServerSecurity
from fogline.errors import Unreachable
from fogline.gateway import hello
from fogline.process.files.tls_files import TlsSettings, client_context, server_context
from fogline_cloud.authority.ca_folder import CaFolder
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_cloud.commands.client.operator import Ask, Operator
from fogline_edge.outbox.outbox import Outbox
from fogline_lab.amqp import End, within
from fogline_lab.credentials.authority_folder import HERE, PASSWORD, AuthorityFolder, certified
from fogline_lab.device.command_device import CommandDevice
from fogline_lab.line.line import Line
from fogline_lab.line.line import gateway as serving_gateway
from fogline_lab.line.secure_line import secure
from fogline_lab.waiting import until, until_not

GATEWAY = {"product": hello.PRODUCT}


@pytest.fixture
def protected(line) -> tuple[Line, AuthorityFolder]:
    return secure(line)


@pytest.fixture
def refusals() -> list[str]:
    """The bridge's lines about refused connections."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    found: list[str] = []
    handler, log = Lines(), logging.getLogger("fogline.bridge.refused")
    (throttle,) = log.filters
    throttle._passed.clear()  # of the tests before
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)


async def test_acknowledged_events_land_once_over_tls(protected):
    line, _ = protected
    async with line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, *range(1000))
        await line.drained(outbox)
        assert bridge.gateways.get("gw-1").principal.proof == "certificate"
    assert line.landed() == list(range(1000))


@pytest.mark.parametrize("how", ["certificate", "password"])
async def test_an_operator_sends_a_command_over_tls(protected, how):
    line, site = protected
    with_password = ClientSecurity(Login(PLAIN, "alice", PASSWORD), site.context())
    security = site.client(Role.OPERATOR, "alice") if how == "certificate" else with_password
    async with line.bridge(), serving_gateway(line) as (outbox, downlink):
        device = CommandDevice(downlink)
        downlink.reachable(device.name, device)
        await line.put(outbox, 0, device=device.name)
        await line.drained(outbox)
        async with Operator(HERE, line.port, line.tenant, security=security) as operator:
            verdict = await within(operator.request(Ask(device.name, "switch", b"{}", ttl_s=30)), f"no answer: {operator.why}")
    assert verdict.status == 200


def tls_1_1(files: TlsSettings) -> ClientSecurity:
    context = client_context(files, "client")
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return ClientSecurity(Login(EXTERNAL), context)


def foreign(site: AuthorityFolder) -> ClientSecurity:
    other = CaFolder.make(site.folder / "other", site.tenant, now_utc(), 1)
    return certified(site.files(Role.GATEWAY, "gw-1", ca=other))


def revoked(site: AuthorityFolder) -> ClientSecurity:
    files = site.files(Role.GATEWAY, "gw-7")
    site.ca.revoke("gw-7", now_utc(), 1)
    return certified(files)


WRONG: dict[str, tuple[Callable[[AuthorityFolder], ClientSecurity], dict[str, str], str, str]] = {
    "no certificate": (lambda site: ClientSecurity(Login(EXTERNAL), site.context()), GATEWAY, "gw-1", "this side offers PLAIN"),
    "another authority's": (foreign, GATEWAY, "gw-1", "unable to get local issuer certificate"),
    "expired": (lambda site: certified(site.files(Role.GATEWAY, "gw-1", later_days=-2)), GATEWAY, "gw-1", "has expired"),
    "not yet valid": (lambda site: certified(site.files(Role.GATEWAY, "gw-1", later_days=1)), GATEWAY, "gw-1", "not yet valid"),
    "revoked": (revoked, GATEWAY, "gw-7", "it is revoked"),
    "another gateway's": (lambda site: site.client(Role.GATEWAY, "gw-2"), GATEWAY, "gw-1", "is of gateway"),
    "an operator's as a gateway": (lambda site: site.client(Role.OPERATOR, "gw-1"), GATEWAY, "gw-1", "is for role operator"),
    "a gateway's as an operator": (lambda site: site.client(Role.GATEWAY, "gw-2"), {}, "alice", "is for role gateway"),
    "a device's": (lambda site: site.client(Role.DEVICE, "gw-1"), GATEWAY, "gw-1", "is for role device"),
    "a bridge's": (lambda site: site.client(Role.BRIDGE, "bridge-2"), GATEWAY, "bridge-2", "is for role bridge"),
    "ANONYMOUS": (lambda site: ClientSecurity(Login(), site.context()), GATEWAY, "gw-1", "this side offers PLAIN"),
    "wrong password": (lambda site: ClientSecurity(Login(PLAIN, "alice", "guess"), site.context()), {}, "alice", "password"),
    "unknown user": (lambda site: ClientSecurity(Login(PLAIN, "eve", PASSWORD), site.context()), {}, "eve", "password"),
    "password of a gateway": (
        lambda site: ClientSecurity(Login(PLAIN, "alice", PASSWORD), site.context()), GATEWAY, "alice", "needs a certificate",
    ),
    "TLS 1.1": (lambda site: tls_1_1(site.files(Role.GATEWAY, "gw-1")), GATEWAY, "gw-1", "before TLS 1.2"),
    "plain text": (lambda _: ClientSecurity(), GATEWAY, "gw-1", "does not speak TLS"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "properties", "name", "why"), WRONG.values(), ids=WRONG)
async def test_a_peer_that_does_not_prove_its_name_is_refused_with_the_reason(protected, refusals, make, properties, name, why):
    line, site = protected
    security = make(site)
    async with line.bridge() as bridge:
        peer = End()
        engine = Engine(name, hostname=HERE, properties={"tenant": line.tenant, **properties}, security=security)
        with contextlib.suppress(Unreachable):
            await connect(HERE, line.port, engine, peer)
            await within(peer.is_closed.wait(), "the peer is let in")
        await until_not(_nothing_in(refusals), "the bridge does not say why")
        assert [each for each in refusals if why in each], (refusals, peer.why)
        assert bridge.gateways.get(name) is None
        async with line.gateway() as outbox:
            await line.put(outbox, 1)
            await line.drained(outbox)
    assert line.landed() == [1]


def _nothing_in(lines: list[str]):
    async def nothing() -> bool:
        return not lines

    return nothing


async def test_a_gateway_refuses_a_bridge_that_the_authority_does_not_know(protected):
    _, site = protected
    other = CaFolder.make(site.folder / "other", site.tenant, now_utc(), 1)
    files = site.files(Role.BRIDGE, "bridge-1", ca=other)
    peer = End()
    async with listening(files) as port:
        engine = Engine("gw-1", hostname=HERE, security=site.client(Role.GATEWAY, "gw-1"))
        await connect(HERE, port, engine, peer)
        await within(peer.is_closed.wait(), "the gateway trusts a stranger")
    assert "the peer's certificate is refused" in peer.why


@pytest.mark.fault("T4")
async def test_a_gateway_whose_clock_is_behind_stores_events_until_the_certificate_of_the_bridge_is_valid(protected):
    """The certificate begins tomorrow, as a gateway sees it whose clock is a day behind."""
    line, site = protected
    async with line.bridge():
        pass  # from now on the line has a port
    outbox = Outbox.open(line.settings())
    async with line.uplink(outbox, backoff=Backoff(base_s=0.01, cap_s=0.01)) as uplink:
        async with listening(site.files(Role.BRIDGE, "bridge-1", later_days=1), line.port):
            for number in (1, 2):
                await line.put(outbox, number)
                uplink.state.why = ""
                await until(lambda: "certificate is not yet valid" in uplink.state.why, "the gateway does not say why")
            assert not uplink.connected
        async with line.bridge():
            await line.drained(outbox)
    await outbox.close()
    assert line.landed() == [1, 2]


@asynccontextmanager
async def listening(files: TlsSettings, port: int = 0):
    security = ServerSecurity((EXTERNAL,), server_context(files, "bridge.tls"))
    make = partial(Engine, "bridge", security=security)
    server = await listen(HERE, port, lambda: AmqpConnection(make(), End()))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.fault("S1", "S6")
async def test_gateway_revoked_while_connected_is_disconnected_and_its_acknowledged_events_stay(
    protected, monkeypatch, refusals
):
    monkeypatch.setattr("fogline_cloud.bridge.bridge.FILES_S", 0.05)
    line, site = protected
    async with line.bridge() as bridge:
        outbox = Outbox.open(line.settings())
        async with line.uplink(outbox):
            await line.put(outbox, *range(100))
            await line.drained(outbox)
            site.ca.revoke("gw-1", now_utc(), 1)
            await until_not(lambda: _is_there(bridge), "a revoked gateway stays connected")
            await line.put(outbox, 100)
            await until_not(_nothing_in(refusals), "it is not refused when it comes back")
            assert "it is revoked" in refusals[0]
        await outbox.close()
    assert line.landed() == list(range(100))


async def _is_there(bridge) -> bool:
    return bridge.gateways.get("gw-1") is not None


async def test_a_new_certificate_is_shown_with_the_next_connection_and_nothing_is_lost(protected):
    """The files are replaced as a renewal does it."""
    line, site = protected
    async with line.bridge() as bridge, line.gateway() as outbox:
        await line.put(outbox, *range(100))
        await line.drained(outbox)
        former = bridge.gateways.get("gw-1")
        new = site.files(Role.GATEWAY, "gw-1")
        for kind in ("certificate", "key"):
            with open(getattr(line.uplink_tls, kind), "wb") as file, open(getattr(new, kind), "rb") as source:  # noqa: ASYNC230, PTH123
                file.write(source.read())
        former.connection.close()
        await line.put(outbox, *range(100, 200))
        await line.drained(outbox)
        assert bridge.gateways.get("gw-1") is not former
    assert line.landed() == list(range(200))
