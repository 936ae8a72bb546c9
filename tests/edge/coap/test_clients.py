"""Clients that others wrote: aiocoap's, and libcoap's `coap-client`."""

import asyncio
import re
import shutil

import aiocoap
import pytest

from edge.coap.aiocoap_client import aiocoap_client, send
from edge.coap.client import LIMIT_S
from fogline.commands.command import Reply
from fogline.events.event import Lane
from fogline_edge.settings import PathSettings
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.port import MemoryPort


async def test_aiocoap_sends_small_and_large_bodies(listening):
    port = MemoryPort()
    large = bytes(range(256)) * 200
    async with listening(port, paths=[PathSettings(path="plant/{device}/#")]) as listener, aiocoap_client() as client:
        assert (await send(client, listener, "telemetry/acme/d1", b"{}", content_format=50)).code == aiocoap.CHANGED
        assert (await send(client, listener, "e//d1", large, aiocoap.POST, content_format=60)).code == aiocoap.CHANGED
        assert (await send(client, listener, "plant/d2/x?a=1", b"[]", content_format=110)).code == aiocoap.CHANGED
    assert [(each.device, each.data, each.content_type) for each in port.arrivals] == [
        ("d1", b"{}", "application/json"),
        ("d1", large, "application/cbor"),
        ("d2", b"[]", "application/senml+json"),
    ]


async def test_aiocoap_reads_refusals(listening):
    async with listening(MemoryPort(), max_body_bytes=5000) as listener, aiocoap_client() as client:
        too_big = await send(client, listener, "t//d1", b"x" * 5001)
        assert (too_big.code, too_big.opt.size1) == (aiocoap.REQUEST_ENTITY_TOO_LARGE, 5000)
        assert (await send(client, listener, "nowhere", b"x")).code == aiocoap.NOT_FOUND
        assert (await send(client, listener, "t", b"x")).code == aiocoap.UNAUTHORIZED
        assert (await send(client, listener, "t//d1", b"", aiocoap.GET)).code == aiocoap.METHOD_NOT_ALLOWED


@pytest.mark.fault("C11")
async def test_aiocoap_waits_for_a_commit_that_takes_long(listening):
    port = MemoryPort()
    port.hold()
    async with listening(port, ack_delay_s=0.01) as listener, aiocoap_client() as client:
        sent = asyncio.create_task(send(client, listener, "t//d1", b"x"))
        await port.until(lambda: port.waiting == 1, "it is put")
        port.release()
        assert (await sent).code == aiocoap.CHANGED


async def coap_client(listener, path, *arguments, method="put"):
    """Run it to its end. Returns what it said, on standard output and on standard error."""
    program = shutil.which("coap-client-notls") or shutil.which("coap-client")
    if program is None:
        pytest.skip("coap-client is not installed")
    host, port = listener.address
    process = await asyncio.create_subprocess_exec(
        program, "-m", method, "-B", "15", *arguments, f"coap://{host}:{port}/{path}",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return said.decode()


@pytest.mark.parametrize("more", [(), ("-N",)], ids=["CON", "NON"])
async def test_libcoap_puts_json(listening, more):
    port = MemoryPort()
    async with listening(port) as listener:
        said = await coap_client(listener, "event/acme/d1", "-t", "50", "-e", '{"alarm":1}', *more)
        (arrival,) = await port.until_stored(1)
    assert said == ""
    assert (arrival.device, arrival.lane, arrival.data) == ("d1", Lane.ALARM, b'{"alarm":1}')
    assert arrival.content_type == "application/json"


@pytest.mark.parametrize("size", [(), ("-b", "64")], ids=["1024", "64"])
async def test_libcoap_puts_twenty_kilobytes(listening, folder, size):
    port = MemoryPort()
    body = bytes(range(256)) * 80
    (folder / "body").write_bytes(body)
    async with listening(port) as listener:
        assert await coap_client(listener, "t//d1", "-t", "42", "-f", str(folder / "body"), *size) == ""
    assert [each.data for each in port.arrivals] == [body]


async def test_libcoap_reads_that_a_body_is_too_big(listening, folder):
    port = MemoryPort()
    (folder / "body").write_bytes(bytes(20_000))
    async with listening(port, max_body_bytes=10_000) as listener:
        assert "4.13" in await coap_client(listener, "t//d1", "-f", str(folder / "body"))
    assert port.arrivals == []


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [("nowhere", "put", "4.04"), ("t", "post", "4.01"), ("t/other/d1", "put", "4.03"), ("t//d1", "get", "4.05")],
)
async def test_libcoap_reads_refusals(listening, path, method, code):
    async with listening(MemoryPort()) as listener:
        assert code in await coap_client(listener, path, "-e", "x", method=method)


async def test_libcoap_reads_that_an_option_is_not_understood(listening):
    async with listening(MemoryPort()) as listener:
        assert "4.02" in await coap_client(listener, "t//d1", "-O", "65001,x", "-e", "x")


async def test_libcoap_asks_for_a_command_and_answers_it(listening):
    port, commands = MemoryPort(), MemoryCommands()
    async with listening(port, commands) as listener:
        asking = asyncio.create_task(coap_client(listener, "t//lamp-1?hono-ttd=15", "-v", "7", "-e", "21.5"))
        await commands.until(lambda: "lamp-1" in commands.devices, "the device is reachable")
        commands.send(make_command())
        said = await asking
        assert '{"on":true}' in said
        assert "hono-command=switch" in said
        location = re.findall(r"Location-Path:([^, \]]+)", said)
        assert location == ["command_response", "acme", "lamp-1", "CMD-1"]
        assert commands.told == [("taken", "CMD-1")]
        await coap_client(listener, "/".join(location) + "?hono-cmd-status=200", "-t", "0", "-e", "ok")
    assert commands.answers == {"CMD-1": Reply(200, b"ok", "text/plain; charset=utf-8")}
