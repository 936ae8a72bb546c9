"""Sockets of the API that have not finished their TLS handshake: bounded, and a client is served beside them."""

import asyncio
import ssl

import pytest

from fogline.process.files.durable_file import write_new
from fogline.process.files.tls_files import TlsSettings, client_context
from fogline_cloud.api.http_server import HttpServer
from fogline_cloud.api_settings import ApiTlsSettings
from fogline_cloud.authority.ca_folder import ROOT, CaFolder
from fogline_cloud.authority.certificates import Role, Subject, key_pem, make_key, now_utc, pem
from fogline_lab.amqp import within

MOST = 20


async def app(scope, receive, send) -> None:
    """Answer every request."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def tls(folder) -> tuple[ApiTlsSettings, ssl.SSLContext]:
    ca, key = CaFolder.make(folder / "ca", "acme", now_utc(), 7), make_key()
    made = ca.issue(Subject("acme", Role.BRIDGE, "api", ["127.0.0.1"]), key.public_key(), now_utc(), 1)
    (folder / "api.pem").write_bytes(pem(made))
    write_new(folder / "api.key", key_pem(key))
    client = client_context(TlsSettings(ca=str(ca.path / ROOT)), "test")
    return ApiTlsSettings(certificate=str(folder / "api.pem"), key=str(folder / "api.key")), client


async def asked(port: int, tls: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(b"GET / HTTP/1.1\r\nhost: api\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.fault("S7")
@pytest.mark.parametrize("encrypted", [True, False], ids=["TLS", "plain"])
async def test_handshakes_that_never_end_make_room_for_a_client(tls, encrypted):
    refused: list[None] = []
    server = HttpServer(app, tls[0] if encrypted else None, MOST, lambda: refused.append(None))
    _, port = await server.start("127.0.0.1", 0)
    silent = []
    try:
        for _ in range(5 * MOST):
            silent.append(await asyncio.open_connection("127.0.0.1", port))  # noqa: PERF401 (those that are open are closed)
        answer = await within(asked(port, tls[1] if encrypted else None), "a client is not served")
        assert answer.startswith(b"HTTP/1.1 200")
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in silent[: 3 * MOST]]
        await within(asyncio.gather(*ends, return_exceptions=True), "the oldest ones are not cut off")
        assert server.connections <= MOST
    finally:
        for _, writer in silent:
            writer.close()
        await server.close()
