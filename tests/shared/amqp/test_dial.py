"""A client's way to its server through a proxy: real proxies, and ones that fail in every way."""

import asyncio
import gc
import socket
from contextlib import asynccontextmanager

import pytest

from fogline.amqp import dial as module
from fogline.amqp.client import AmqpClient
from fogline.amqp.driver import open_connections
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.security import ClientSecurity
from fogline.errors import Unreachable
from fogline.message import Message
from fogline.transport.proxy.proxy_address import ProxyKind, parse_proxy, with_password
from fogline_lab.amqp import End, served, within
from fogline_lab.kafka_broker import free_port
from fogline_lab.site_proxy import PASSWORD, SiteProxy

HERE = "127.0.0.1"
KINDS = list(ProxyKind)
OPEN = {ProxyKind.SOCKS5: [b"\x05\x00", b"\x05\x00\x00\x01" + bytes(6)], ProxyKind.HTTP: [b"HTTP/1.1 200 OK\r\n\r\n"]}


def new_client():
    return AmqpClient("alice", {"tenant": "acme"}, ClientSecurity())


def address(site, password=PASSWORD):
    found = parse_proxy(site.url, "uplink.proxy")
    return with_password(found, password, "uplink.proxy") if site.login else found


@asynccontextmanager
async def proxy_that(answers, kind, *, then=b""):
    """A proxy by hand: it gives the answers in turn, each to what it has got, and then closes, or sends `then` and waits."""
    asked = []

    async def serve(reader, writer):
        for each in answers:
            asked.append(await reader.read(1000))
            writer.write(each)
        if then:
            writer.write(then)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    try:
        yield parse_proxy(f"{kind}://{HERE}:{server.sockets[0].getsockname()[1]}", "x"), asked
    finally:
        server.close()


async def refusal(proxy, host=HERE, port=5671):
    client = new_client()
    with pytest.raises(Unreachable) as refused:
        await within(client.open(host, port, proxy), "neither open nor refused")
    assert client.why == "", "there was a connection"
    return str(refused.value)


@pytest.mark.parametrize("login", [False, True], ids=["open", "login"])
@pytest.mark.parametrize("kind", KINDS)
async def test_messages_go_through_a_proxy(folder, kind, login):
    server = End()
    with SiteProxy(folder, kind, login=login) as site:
        async with served(server) as port, new_client() as client:
            await client.open(HERE, port, address(site))
            client.attach("events", "telemetry/acme")
            sent = [client.send(Message(subject=f"{number}", body=bytes(20_000))) for number in range(50)]
            assert set(await within(asyncio.gather(*sent), "not settled")) == {ACCEPTED}
    assert [each.subject for each in server.messages] == [f"{number}" for number in range(50)]


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_password_of_the_proxy_is_named_as_such(folder, kind):
    server = End()
    with SiteProxy(folder, kind, login=True) as site:
        async with served(server) as port:
            wrong = await refusal(address(site, "wrong"), HERE, port)
            none = await refusal(parse_proxy(f"{kind}://{HERE}:{site.port}", "x"), HERE, port)
    assert "refuses user 'gw-1'" in wrong
    assert "requires a login" in none
    assert not server.peers


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_bridge_that_does_not_listen_is_at_fault_and_not_the_proxy(folder, kind):
    with SiteProxy(folder, kind) as site:
        port = free_port()
        text = await refusal(address(site), HERE, port)
    assert text.startswith((f"the bridge at {HERE}:{port} cannot be reached", f"the proxy at {site.url} makes no connection"))


@pytest.mark.fault("N10")
async def test_a_rule_of_the_proxy_is_named(folder):
    with SiteProxy(folder, ProxyKind.HTTP, allowed_port=443) as site:
        assert f"allows no connection to {HERE}:5671: status 403" in await refusal(address(site))


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_does_not_run_is_named(kind):
    text = await refusal(parse_proxy(f"{kind}://{HERE}:{free_port()}", "x"))
    assert text.startswith(f"cannot connect to the proxy at {kind}://{HERE}:")
    assert "[uplink.proxy]" in text


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_ends_in_mid_answer_is_named(kind):
    for answers in ([b""], [OPEN[kind][0][:1]], [*OPEN[kind][:-1], OPEN[kind][-1][:-1]]):
        async with proxy_that(answers, kind) as (proxy, _):
            assert "ended the connection before it answered" in await refusal(proxy)


@pytest.mark.fault("N10")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_proxy_that_never_answers_is_given_up(kind, monkeypatch):
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.2)
    async with proxy_that([b""], kind, then=OPEN[kind][0][:1]) as (proxy, _):
        assert "makes no connection to 127.0.0.1:5671 within" in await refusal(proxy)


@pytest.mark.parametrize("kind", KINDS)
async def test_the_proxy_resolves_the_name_of_the_bridge(kind, monkeypatch):
    looked_up = []
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: looked_up.append(host) or real(host, *rest, **more))
    async with proxy_that([*OPEN[kind][:-1], b"no"], kind) as (proxy, asked):
        await refusal(proxy, "fog.example")
    assert b"fog.example" in b"".join(asked)
    assert not {"fog.example", b"fog.example"} & set(looked_up)


@pytest.mark.parametrize("kind", KINDS)
async def test_bytes_of_the_bridge_that_come_with_the_proxy_s_answer_are_not_lost(kind):
    """The peer's protocol header begins with the last byte of the answer; a wrong one is refused by AMQP, not by the proxy."""
    async with proxy_that([*OPEN[kind][:-1], OPEN[kind][-1] + b"AMQP\x09\x09\x09\x09"], kind) as (proxy, _):
        client = new_client()
        with pytest.raises(Unreachable, match="AMQP"):
            await within(client.open(HERE, 5671, proxy), "neither open nor refused")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_attempt_leaves_no_socket_open(kind):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader, writer):
        begun.set()
        await reader.read()
        ended.set()
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    proxy = parse_proxy(f"{kind}://{HERE}:{server.sockets[0].getsockname()[1]}", "x")
    attempt = asyncio.create_task(new_client().open(HERE, 5671, proxy))
    await within(begun.wait(), "no connection")
    attempt.cancel()
    await asyncio.wait({attempt})
    await within(ended.wait(), "the socket is still open")
    server.close()
    gc.collect()
    assert not open_connections()


@pytest.mark.parametrize("name", ["a..b", "x" * 70, "fog\0"], ids=["empty label", "long label", "control character"])
async def test_a_name_that_no_host_can_have_is_unreachable(name):
    """The resolver raises errors of encodings for it, which ended the task that connects."""
    assert name[:3] in await refusal(None, name)
