"""A gateway whose site lets it out only through a proxy: real proxies, and a real bridge with TLS on a real broker."""

import asyncio
from contextlib import ExitStack, asynccontextmanager
from math import inf
from random import Random

import pytest
from msgspec.structs import replace

from e2e.enrolling import serial, token_of
from fogline.errors import Misconfigured, Unreachable
from fogline.process.checkup import Grade
from fogline.transport.proxy.proxy_address import ProxyKind
from fogline_edge.operate.doctor import diagnose
from fogline_edge.operate.enrolment import enroll, renew
from fogline_edge.operate.settings_check import check
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import MqttSettings, ProxySettings, load
from fogline_lab.credentials.authority_folder import HERE
from fogline_lab.kafka_broker import free_port
from fogline_lab.line.secure_line import secure
from fogline_lab.site_proxy import PASSWORD, SiteProxy
from fogline_lab.tcp_line import LineFault, PlannedFault, TcpLine
from fogline_lab.waiting import until

KINDS = list(ProxyKind)
CUTS = 8


def password_file(folder, password=PASSWORD):
    file = folder / f"proxy-password-{len(password)}"
    file.touch(mode=0o600)
    file.write_text(f"{password}\n")
    return str(file)


@asynccontextmanager
async def behind(line, proxy):
    """A gateway with its uplink through a proxy. Yields outbox and uplink."""
    outbox = Outbox.open(line.settings())
    async with line.uplink(outbox, settings=replace(line.settings().uplink, proxy=proxy)) as uplink:
        yield outbox, uplink
    await outbox.close()


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_events_land_once_through_a_proxy_that_cuts(line, folder, kind):
    """N10: each connection to the proxy dies after some batches; then the proxy is killed and started again."""
    line, _ = secure(line)
    chance = Random(39)
    with ExitStack() as stack:
        site = stack.enter_context(SiteProxy(folder, kind, login=True))
        async with line.bridge(), TcpLine(site.port) as way:
            way.plan = lambda: (
                PlannedFault(LineFault.RESET, chance.randrange(30_000, 120_000), inf) if len(way.failed) < CUTS else None
            )
            url = site.url.replace(str(site.port), str(way.port))
            async with behind(line, ProxySettings(url=url, password_file=password_file(folder))) as (outbox, uplink):
                bodies = {n: b'{"n": %d, "more": "%s"}' % (n, chance.randbytes(3000).hex().encode()) for n in range(400)}
                await asyncio.gather(*(line.put(outbox, n, data=body) for n, body in bodies.items()))
                await line.drained(outbox)
                site.kill()
                await until(lambda: not uplink.connected, "the dead proxy is not noticed")
                await line.put(outbox, *range(400, 500))
                await until(lambda: "the proxy at" in uplink.state.why, "the reason does not name the proxy")
                stack.enter_context(site)
                await line.drained(outbox)
            assert len(way.failed) == CUTS
    assert line.landed() == list(range(500))


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_gateway_whose_proxy_password_is_corrected_connects_without_a_restart(line, folder, kind):
    line, _ = secure(line)
    file = password_file(folder, "wrong")
    with SiteProxy(folder, kind, login=True) as site:
        async with line.bridge(), behind(line, ProxySettings(url=site.url, password_file=file)) as (outbox, uplink):
            await line.put(outbox, *range(10))
            await until(lambda: "refuses user 'gw-1'" in uplink.state.why, "the reason does not name the password")
            assert "password_file" in uplink.state.why
            (folder / "proxy-password-5").write_text(PASSWORD)
            await line.drained(outbox)
    assert line.landed() == list(range(10))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_gateway_enrols_renews_and_is_diagnosed_through_a_proxy(issuing, folder, kind):
    line, site_ca = issuing
    pi = folder / "pi"
    with SiteProxy(folder, kind, login=True) as site:
        async with line.bridge() as bridge:
            proxy = ProxySettings(url=site.url, password_file=password_file(folder))
            config = await asyncio.to_thread(enroll, token_of(site_ca), f"{HERE}:{line.port}", pi, proxy)
            settings = load(config)
            assert settings.uplink.proxy == proxy
            first = serial(pi)
            await asyncio.to_thread(renew, settings)
            assert serial(pi) != first
            findings = await asyncio.to_thread(lambda: list(diagnose(config)))
            assert not [each for each in findings if each.grade is Grade.FAIL], findings
            texts = [each.text for each in findings]
            assert f"{kind}://127.0.0.1:{site.port} connects to {HERE}:{line.port}" in texts
            assert any("lets gateway gw-9 in" in each for each in texts)
            outbox = Outbox.open(settings)
            async with line.uplink(outbox, settings=settings.uplink):
                await line.put(outbox, *range(10))
                await line.drained(outbox)
                assert bridge.gateways.get("gw-9").principal.proof == "certificate"
            await outbox.close()
            site.kill()
            with pytest.raises(Unreachable, match="cannot connect to the proxy at"):
                await asyncio.to_thread(renew, settings)
            failed = [each for each in await asyncio.to_thread(lambda: list(diagnose(config))) if each.grade is Grade.FAIL]
    assert [each.subject for each in failed] == ["proxy"]
    assert line.landed() == list(range(10))


def test_settings_of_a_proxy_that_cannot_be_used_are_refused(folder):
    (folder / "edge.toml").write_text('tenant = "acme"\ngateway = "gw-1"\ndata = "data"\n[mqtt]\nport = 0\n')
    settings = replace(load(folder / "edge.toml"), mqtt=MqttSettings(port=0))
    open_to_all = folder / "open"
    open_to_all.write_text(PASSWORD)
    open_to_all.chmod(0o644)
    url = f"socks5://gw-1@127.0.0.1:{free_port()}"
    for proxy, why in (
        (ProxySettings(url="proxy:1080"), r"uplink\.proxy.*expected socks5://host:port"),
        (ProxySettings(url=url), "user 'gw-1' needs a password"),
        (ProxySettings(url=url, password_file=str(folder / "missing")), "cannot read"),
        (ProxySettings(url=url, password_file=str(open_to_all)), "everybody may read"),
        (ProxySettings(url="http://proxy.site:3128"), "without credentials only loopback"),
    ):
        with pytest.raises(Misconfigured, match=why):
            check(replace(settings, uplink=replace(settings.uplink, proxy=proxy)))
