"""The gateway's HTTP listener and the API frame requests alike, as RFC 9112 says."""

import asyncio
import contextlib
import logging
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fogline.process.rates import DeviceRates
from fogline_cloud.api.http_rules import conforming
from fogline_cloud.api.http_server import HttpServer
from fogline_edge.adapters.http.listener import HttpListener
from fogline_edge.settings import HttpSettings
from fogline_lab.port import MemoryPort

DEADLINE_S = 60


@asynccontextmanager
async def gateway():
    listener = HttpListener(MemoryPort(), HttpSettings(port=0), DeviceRates(1000, 1000), None)
    await listener.start()
    try:
        yield listener.addresses["http"][1]
    finally:
        await listener.close()


@asynccontextmanager
async def api():
    async def take(request: Request) -> Response:
        await request.body()
        return Response(status_code=202)

    server = HttpServer(conforming(Starlette(routes=[Route("/t//d1", take, methods=["POST"])])), None, 100, lambda: None)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.close()


SERVERS = pytest.mark.parametrize("server", [gateway, api], ids=["gateway", "api"])


async def exchange(port, data):
    """Send bytes and then the end of what is sent. Returns status and fields of each response until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    found = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            while head := await _head(reader):
                lines = head.decode("latin-1").split("\r\n")
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
                found.append((int(lines[0].split()[1]), fields))
                if "content-length" not in fields:  # the body ends with the connection
                    with contextlib.suppress(ConnectionResetError):  # it is closed with bytes of the request unread
                        await reader.read()
                    break
                await reader.readexactly(int(fields["content-length"]))
                if len(found) == data.count(b" HTTP/1.") and fields.get("connection") != "close":
                    break
    finally:
        writer.close()
    return found


async def _head(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""


def post(*fields, body=b'{"t":1}', target=b"/t//d1", host=b"gw", version=b"1.1", length=True):
    lines = [b"POST " + target + b" HTTP/" + version, *([b"Host: " + host] if host is not None else [])]
    lines += [b"Content-Type: application/json", *fields, *([b"Content-Length: %d" % len(body)] if length else [])]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


CHUNKED = b'7\r\n{"t":1}\r\n0\r\n\r\n'
AMBIGUOUS = post(b"Transfer-Encoding: chunked", b"Content-Length: 0", body=CHUNKED, length=False)
ACCEPTED = {
    "two requests": (post() + post(), [202, 202]),
    "chunked": (post(b"Transfer-Encoding: chunked", body=CHUNKED, length=False), [202]),
    "an empty line after a body": (post() + b"\r\n" + post(), [202, 202]),
    "an empty line before a request": (b"\r\n" + post(), [202]),
    "absolute form": (post(target=b"http://gw/t//d1"), [202]),
    "a host with a port": (post(host=b"[::1]:8080"), [202]),
    "an empty host": (post(host=b""), [202]),
}
ENDING = {
    "both lengths": (AMBIGUOUS + post(), [202]),
    "a host that is none": (post(host=b"a b") + post(), [400]),
    "no host": (post(host=None) + post(), [400]),
    "two hosts": (post(b"Host: other") + post(), [400]),
    "a chunk size that is none": (post(b"Transfer-Encoding: chunked", body=b"zz\r\n", length=False) + post(), [400]),
    "a length that is none": (post(b"Content-Length: -1", length=False) + post(), [400]),
    "two lengths": (post(b"Content-Length: 3") + post(), [400]),
    "a blank before the colon": (post(b"X : 1") + post(), [400]),
    "no HTTP": (b"\x16\x03\x01\x00\x00\r\n\r\n", [400]),
    "a head of 100 kB": (post(b"X: " + b"x" * 100_000) + post(), [431]),
}


@SERVERS
@pytest.mark.parametrize("case", ACCEPTED)
async def test_well_framed_request_is_served(server, case):
    data, statuses = ACCEPTED[case]
    async with server() as port:
        found = await exchange(port, data)
    assert [status for status, _ in found] == statuses
    assert all("date" in fields for _, fields in found)


@SERVERS
@pytest.mark.parametrize("case", ENDING)
@pytest.mark.fault("S4")
async def test_ambiguous_framing_closes_the_connection_after_its_response(server, case, caplog):
    data, statuses = ENDING[case]
    with caplog.at_level(logging.WARNING):
        async with server() as port:
            assert [status for status, _ in await exchange(port, data)] == statuses
    assert not [each for each in caplog.records if each.exc_info], "a stranger's error logs a traceback"
