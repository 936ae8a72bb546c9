"""Peers that do not prove their names, or never end their handshake: refused with the reason, and a good device is served."""

import asyncio
import gc

import pytest

from edge.mqtt.refused_peers import PLAIN, REFUSED, greeting_with_tls
from edge.sockets.bad_peers import HELLO, SILENT, with_bytes
from fogline.process.files import tls_files
from fogline_edge.adapters.mqtt.server import connection, listener
from fogline_lab.amqp import within
from fogline_lab.clock import pass_time
from fogline_lab.credentials.mqtt_tls_files import PASSWORD, MqttTlsFiles
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import puback
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

FLAT_BYTES = 3_000_000


@pytest.fixture
def secured(folder, monkeypatch) -> MqttTlsFiles:
    monkeypatch.setattr(tls_files, "QUIET_S", 0)  # a list of revoked certificates counts with the next connection
    return MqttTlsFiles(folder)


@pytest.mark.fault("S5")
@pytest.mark.parametrize(("peer", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_peer_is_refused_with_the_reason_and_a_good_device_is_served_beside_it(
    secured, listening, dial, refusals, peer, why
):
    port = MemoryPort()
    login = {"username": "hub", "password": PASSWORD}
    async with listening(port, **secured.settings()) as served:
        bad = asyncio.create_task(peer(secured, served.addresses["mqtts"]))
        async with dial(served, "good", tls=secured.trusting(), **login) as (wire, _):
            await wire.publish("t", b"good")
            assert await wire.receive() == puback(1)
            if peer in SILENT.values():
                await eventually(lambda: served.counters.connected == 2, "both are there")
                pass_time(10)
            await bad
            await eventually(lambda: refusals, "the log says why")
            assert len(refusals) == 1
            assert why in refusals[0]
            await eventually(lambda: served.counters.connected == 1, "only the good one is left")
            await wire.alive()
    assert [each.data for each in port.arrivals] == [b"good"]


async def test_without_users_a_peer_must_show_a_certificate(secured, listening, refusals):
    port = MemoryPort()
    async with listening(port, **secured.settings(users=False)) as served:
        await greeting_with_tls(MqttTlsFiles.trusting)(secured, served.addresses["mqtts"])
        await eventually(lambda: refusals, "the log says why")
        assert "the peer has no certificate" in refusals[0]
    assert port.arrivals == []


async def test_a_client_that_says_nothing_after_its_handshake_is_ended_in_time(secured, listening, refusals):
    async with listening(MemoryPort(), **secured.settings()) as served:
        reader, writer = await asyncio.open_connection(*served.addresses["mqtts"], ssl=secured.trusting())
        pass_time(10)
        assert await within(reader.read(), "it stays") == b""
        assert "the client sent no CONNECT in time" in refusals[0]
        writer.close()


async def test_a_flood_of_refused_peers_writes_one_line_for_each_reason(secured, listening, dial, refusals):
    async with listening(MemoryPort(), **secured.settings()) as served:
        address = served.addresses["mqtts"]
        for _ in range(20):
            await with_bytes(PLAIN)(secured, address)
            await greeting_with_tls(MqttTlsFiles.trusting)(secured, address)
        await eventually(lambda: served.counters.refused == 40, "all are refused")
        assert len(refusals) == 2


async def test_the_log_names_whose_password_is_wrong_and_a_flood_of_names_writes_one_line(secured, listening, refusals):
    async with listening(MemoryPort(), **secured.settings()) as served:
        for number in range(10):
            guess = greeting_with_tls(MqttTlsFiles.trusting, username=f"hub-{number}", password=b"guess")
            await guess(secured, served.addresses["mqtts"])
        await eventually(lambda: served.counters.refused == 10, "all are refused")
    assert len(refusals) == 1
    assert "wrong user name or password (client " in refusals[0]
    assert "user 'hub-0')" in refusals[0]


async def test_sockets_that_linger_after_their_refusal_are_bounded(secured, listening, monkeypatch):
    monkeypatch.setattr(listener, "LINGERING", 3)
    monkeypatch.setattr(connection, "_LINGER_S", 600.0)
    async with listening(MemoryPort(), **secured.settings()) as served:
        opened = []
        for number in range(1, 11):
            opened.append(await asyncio.open_connection(*served.addresses["mqtts"]))
            opened[-1][1].write(PLAIN)
            await eventually(lambda number=number: served.counters.refused == number, "it is refused")
        await eventually(lambda: served.counters.connected <= 4, "the oldest are closed")
        for _, writer in opened:
            writer.transport.abort()


@pytest.mark.fault("S5")
async def test_hundreds_of_handshakes_that_fail_or_never_end_leave_no_memory_behind(secured, listening, dial):
    """Silent ones hold all the slots at a time; the next ones push them out."""
    kinds = [peer for name, (peer, _) in REFUSED.items() if name not in SILENT]
    settings = {**secured.settings(), "max_connections": 50, "connect_timeout_s": 60.0}
    port = MemoryPort()
    async with listening(port, **settings) as served:
        address = served.addresses["mqtts"]

        async def storm() -> None:
            silent = [await asyncio.open_connection(*address) for _ in range(100)]
            for _, writer in silent[::2]:
                writer.write(HELLO)
            for _ in range(10):
                await asyncio.gather(*(each(secured, address) for each in kinds))
            for _, writer in silent:
                writer.transport.abort()
            await eventually(lambda: served.counters.connected == 0, "all are gone")
            gc.collect()

        for _ in range(2):
            await storm()
        before, already = resident_bytes(), served.counters.connections
        for _ in range(2):
            await storm()
        grown = resident_bytes() - before
        print(f"{served.counters.connections - already} connections: {grown / 1e6:+.1f} MB")
        assert grown < FLAT_BYTES
        async with dial(served, "good", tls=secured.device()) as (wire, _):
            await wire.publish("t")
            assert await wire.receive() == puback(1)
    assert len(port.arrivals) == 1


async def test_bytes_that_break_tls_after_the_login_end_that_connection_only(secured, listening, dial, refusals):
    port = MemoryPort()
    async with (
        listening(port, **secured.settings()) as served,
        dial(served, "good", tls=secured.device("hub")) as (good, _),
        dial(served, "bad", tls=secured.device("lamp-1")) as (bad, _),
    ):
        raw: MqttWire = bad
        raw.writer.transport.get_extra_info("socket")._sock.send(bytes(100))
        await eventually(lambda: served.counters.malformed == 1, "it is noticed")
        assert "client 'bad'" in refusals[0]
        await good.publish("t")
        assert await good.receive() == puback(1)
