"""Peers of the HTTPS port that do not prove their names, or never end their handshake, and a good device beside them."""

import asyncio
import gc
import logging

import pytest

from edge.http.client import basic, request
from edge.sockets.bad_peers import HELLO, NO_DEVICE, NO_HANDSHAKE, NO_TLS, SILENT, Peer, with_bytes, with_tls
from fogline.process.files import tls_files
from fogline_edge.adapters.http import connection
from fogline_lab.amqp import within
from fogline_lab.clock import pass_time
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.memory import resident_bytes
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

FLAT_BYTES = 3_000_000
GREETING = request("/telemetry//hub", b"evil", authorization=basic("hub", "guess"))
REFUSED: dict[str, tuple[Peer, str]] = {
    **NO_TLS,
    "plain text": (with_bytes(GREETING), "the peer does not speak TLS (it sent an HTTP request)"),
    **{name: (with_tls(make, GREETING), why) for name, (make, why) in NO_HANDSHAKE.items()},
}


@pytest.fixture
def secured(folder, monkeypatch) -> MqttTlsFiles:
    monkeypatch.setattr(tls_files, "QUIET_S", 0)  # a list of revoked certificates counts with the next connection
    return MqttTlsFiles(folder)


@pytest.fixture
def refusals():
    """The server's lines about connections that ended."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    found: list[str] = []
    handler, log = Lines(), logging.getLogger(connection.__name__)
    (throttle,) = log.filters
    throttle._passed.clear()  # of the tests before
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)
    log.setLevel(level)


@pytest.mark.fault("S5")
@pytest.mark.parametrize(("peer", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_peer_is_refused_with_the_reason_and_a_good_device_is_served_beside_it(
    secured, listening, dial, refusals, peer, why
):
    port = MemoryPort()
    async with listening(port, **secured.http_settings()) as server:
        bad = asyncio.create_task(peer(secured, server.addresses["https"]))
        async with dial(server, secured.device()) as talker:
            assert (await talker.ask(request("/t", b"good"))).status == 202
            if peer in SILENT.values():
                await eventually(lambda: server.counters.connected == 2, "both are there")
                pass_time(10)
            await bad
            await eventually(lambda: refusals, "the log says why")
            assert len(refusals) == 1
            assert why in refusals[0]
            assert server.counters.handshakes_refused == 1
            await eventually(lambda: server.counters.connected <= 1, "the bad one is gone")
        async with dial(server, secured.device()) as talker:
            assert (await talker.ask(request("/t", b"good"))).status == 202
    assert [each.data for each in port.arrivals] == [b"good"] * 2


@pytest.mark.fault("S5")
@pytest.mark.parametrize(("make", "why"), NO_DEVICE.values(), ids=NO_DEVICE)
async def test_a_certificate_that_is_no_device_s_is_403(secured, listening, dial, make, why):
    port = MemoryPort()
    async with listening(port, **secured.http_settings()) as server, dial(server, make(secured)) as talker:
        response = await talker.ask(request("/t//hub", authorization=basic("hub", PASSWORD.decode())))
        assert response.status == 403
        assert why in response.body.decode()
        assert server.counters.refused == {"not-authorised": 1}
    assert port.arrivals == []


@pytest.mark.fault("S5")
async def test_without_users_a_peer_must_show_a_certificate(secured, listening, refusals):
    port = MemoryPort()
    async with listening(port, **secured.http_settings(users=False)) as server:
        await with_tls(MqttTlsFiles.trusting, GREETING)(secured, server.addresses["https"])
        await eventually(lambda: refusals, "the log says why")
        assert "the peer has no certificate" in refusals[0]
    assert port.arrivals == []


async def test_tls_on_the_plain_port_is_told_so_in_plain_text(secured, listening, dial):
    settings = {**secured.http_settings(), "port": 0}
    async with listening(MemoryPort(), **settings) as server, dial(server) as talker:
        response = await talker.ask(HELLO)
        assert response.status == 400
        assert b"the client speaks TLS, and this port does not" in response.body


async def test_bytes_that_break_tls_after_the_login_end_that_connection_only(secured, listening, dial, refusals):
    async with (
        listening(MemoryPort(), **secured.http_settings()) as server,
        dial(server, secured.device()) as good,
        dial(server, secured.device("lamp-1")) as bad,
    ):
        assert (await bad.ask(request("/t"))).status == 202
        bad.writer.get_extra_info("socket")._sock.send(bytes(100))
        await eventually(lambda: refusals, "it is noticed")
        assert (await good.ask(request("/t"))).status == 202


async def test_a_flood_of_refused_peers_writes_one_line_for_each_reason(secured, listening, refusals):
    expired, _ = REFUSED["expired"]
    async with listening(MemoryPort(), **secured.http_settings()) as server:
        for _ in range(20):
            await with_bytes(GREETING)(secured, server.addresses["https"])
            await expired(secured, server.addresses["https"])
        await eventually(lambda: server.counters.handshakes_refused == 40, "all are refused")
    assert len(refusals) == 2


@pytest.mark.fault("S5")
async def test_a_thousand_handshakes_that_fail_or_never_end_leave_no_memory_and_a_good_device_is_served(
    secured, listening, dial
):
    kinds = [peer for name, (peer, _) in REFUSED.items() if name not in SILENT]
    settings = {**secured.http_settings(), "max_connections": 50, "request_timeout_s": 60.0}
    port, tls = MemoryPort(), secured.device()
    async with listening(port, **settings) as server:
        address = server.addresses["https"]

        async def storm() -> None:
            silent = [await asyncio.open_connection(*address) for _ in range(100)]
            for _, writer in silent[::2]:
                writer.write(HELLO)
            for _ in range(25):
                await asyncio.gather(*(each(secured, address) for each in kinds))
            for _, writer in silent:
                writer.transport.abort()
            await eventually(lambda: server.counters.connected == 0, "all are gone")
            gc.collect()

        for _ in range(2):
            await storm()
        before = resident_bytes()
        storms = asyncio.create_task(storm())
        async with dial(server, tls) as talker:
            assert (await talker.ask(request("/t"))).status == 202
            assert not storms.done(), "the good device is served after all that are refused"
        await storms
        grown = resident_bytes() - before
        print(f"{server.counters.connections} connections: {grown / 1e6:+.1f} MB")
        assert server.counters.connections > 800
        assert grown < FLAT_BYTES


async def test_a_client_that_says_nothing_after_its_handshake_is_ended_in_time(secured, listening):
    async with listening(MemoryPort(), **secured.http_settings()) as server:
        reader, writer = await asyncio.open_connection(*server.addresses["https"], ssl=secured.trusting())
        pass_time(10)
        assert await within(reader.read(), "it stays") == b""
        writer.close()
