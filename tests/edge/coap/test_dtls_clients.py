"""DTLS clients that others wrote: libcoap's `coap-client` with OpenSSL and with GnuTLS."""

import asyncio
import re
import shutil

import pytest

from edge.coap.client import LIMIT_S
from edge.coap.dtls_talk import KEY
from edge.coap.dtls_wire import secured, store_of
from fogline.commands.command import Reply
from fogline.events.event import Lane
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort
from fogline_lab.udp_line import DatagramFaults, udp_line

SECRET = KEY.decode()
PROGRAMS = ("coap-client-openssl", "coap-client-gnutls")


@pytest.fixture(params=PROGRAMS)
def coap_client(request):
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not installed")

    async def run(place, path, *arguments, method="put", key=SECRET, identity="lamp-1", scheme="coaps"):
        """Run it to its end. Return what it said, on standard output and error. `place`: a listener or an address."""
        host, port = place if isinstance(place, tuple) else place.addresses["coaps"]
        secret = ("-k", key, "-u", identity) if scheme == "coaps" else ()
        process = await asyncio.create_subprocess_exec(
            program, "-m", method, "-B", "15", *secret, *arguments, f"{scheme}://{host}:{port}/{path}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(LIMIT_S):
                said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        return said.decode()

    return run


DEVICES = ("lamp-1", "lamp-2")


async def test_libcoap_sends_small_and_large_bodies(coap_client, folder):
    port, body = MemoryPort(), bytes(range(256)) * 80
    (folder / "body").write_bytes(body)
    async with secured(port, store_of(*DEVICES)) as listener:
        assert await coap_client(listener, "event/acme/lamp-1", "-t", "50", "-e", '{"alarm":1}') == ""
        assert await coap_client(listener, "t", "-t", "42", "-f", str(folder / "body")) == ""
    assert [(each.device, each.lane, each.data) for each in port.arrivals] == [
        ("lamp-1", Lane.ALARM, b'{"alarm":1}'),
        ("lamp-1", Lane.TELEMETRY, body),
    ]


async def test_libcoap_finishes_its_handshake_over_a_line_that_loses_and_reorders_datagrams(coap_client):
    port, faults = MemoryPort(), DatagramFaults(lose=0.2, duplicate=0.2, reorder=0.2)
    async with secured(port, store_of(*DEVICES)) as listener, udp_line(listener.addresses["coaps"], faults, seed=59) as line:
        await coap_client(line.address, "t", "-e", "1", "-B", "50")
        assert (line.up.lost > 0, line.down.lost > 0) == (True, True), "take another seed"
    assert [each.data for each in port.arrivals] == [b"1"]


@pytest.mark.fault("S11")
async def test_libcoap_is_refused_with_another_key_identity_device_or_without_dtls(coap_client):
    port = MemoryPort()
    async with secured(port, store_of(*DEVICES)) as listener:
        await coap_client(listener, "t", "-e", "x", key="another key")
        await coap_client(listener, "t", "-e", "x", identity="stranger")
        await coap_client(listener, "t", "-e", "x", "-N", "-B", "1", scheme="coap")
        assert "4.03" in await coap_client(listener, "telemetry/acme/lamp-2", "-e", "x")
        assert listener.dtls_counters.refused == {"wrong-key": 1, "unknown-identity": 1, "plain-coap": 1}
        assert listener.counters.refused == {"other-device": 1}
    assert port.arrivals == []


async def test_libcoap_asks_for_a_command_and_answers_it(coap_client):
    commands = MemoryCommands()
    async with secured(MemoryPort(), store_of(*DEVICES), commands) as listener:
        asking = asyncio.create_task(coap_client(listener, "t//lamp-1?hono-ttd=15", "-v", "7", "-e", "21.5"))
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
        commands.send(make_command())
        said = await asking
        assert '{"on":true}' in said
        location = re.findall(r"Location-Path:([^, \]]+)", said)
        assert commands.told == [("taken", "CMD-1")]
        await coap_client(listener, "/".join(location) + "?hono-cmd-status=200", "-t", "0", "-e", "ok")
    assert commands.answers == {"CMD-1": Reply(200, b"ok", "text/plain; charset=utf-8")}


async def test_libcoap_observes_its_commands(coap_client):
    commands = MemoryCommands()
    async with secured(MemoryPort(), store_of(*DEVICES), commands) as listener:
        observing = asyncio.create_task(coap_client(listener, "command//lamp-1", "-s", "2", method="get"))
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
        commands.send(make_command())
        await commands.until(lambda: ("taken", "CMD-1") in commands.told, "the device has acknowledged it")
        assert '{"on":true}' in await observing
