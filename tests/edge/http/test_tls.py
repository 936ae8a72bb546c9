"""HTTPS: devices log in by password or certificate, and all that holds without TLS holds with it."""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest

from edge.http.client import basic, minutes_pass, request
from fogline.errors import Misconfigured
from fogline.process.files import tls_files
from fogline.process.rates import DeviceRates
from fogline_cloud.authority.certificates import Role, now_utc
from fogline_edge.adapters.http import last_response, listener
from fogline_edge.adapters.http.listener import HttpListener
from fogline_edge.listener_settings import HttpTlsSettings
from fogline_edge.settings import HttpSettings
from fogline_lab.amqp import within
from fogline_lab.clock import pass_time
from fogline_lab.commands import MemoryCommands, make_command
from fogline_lab.credentials.mosquitto_passwords import password_file
from fogline_lab.credentials.mqtt_tls_files import HERE, PASSWORD, MqttTlsFiles
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

LAMP = basic("lamp-1", PASSWORD.decode())
LIMIT_S = 60.0


@pytest.fixture
def secured(folder) -> MqttTlsFiles:
    return MqttTlsFiles(folder)


@pytest.mark.fault("C11")
async def test_202_comes_over_tls_after_the_commit(secured, listening, dial):
    port = MemoryPort()
    port.hold()
    async with (
        listening(port, **secured.http_settings()) as server,
        dial(server, secured.trusting()) as talker,
        dial(server, secured.trusting()) as other,
    ):
        talker.send(request("/telemetry", b"21.5", authorization=LAMP))
        await port.until(lambda: port.waiting == 1, "it is put")
        assert (await other.ask(request("/telemetry"))).status == 401
        port.release()
        assert (await talker.receive()).status == 202
    assert [(each.device, each.data) for each in port.arrivals] == [("lamp-1", b"21.5")]


@pytest.mark.parametrize("users", [True, False], ids=["beside users", "alone"])
async def test_the_common_name_of_a_certificate_is_the_device(secured, listening, dial, users):
    port = MemoryPort()
    settings = secured.http_settings(users=users, acl={"lamp-2": ["press-*"]})
    async with listening(port, **settings) as server, dial(server, secured.device("lamp-2")) as talker:
        for path, status in (("/telemetry", 202), ("/t//lamp-2", 202), ("/t//press-1", 202), ("/t//lamp-1", 403)):
            assert (path, (await talker.ask(request(path, authorization=LAMP))).status) == (path, status)
    assert [each.device for each in port.arrivals] == ["lamp-2", "lamp-2", "press-1"]


async def test_many_requests_and_a_body_of_several_records_on_one_connection(secured, listening, dial):
    port, large = MemoryPort(), bytes(range(256)) * 1000
    async with listening(port, **secured.http_settings()) as server, dial(server, secured.device()) as talker:
        talker.send(*(request("/t", b"%d" % number) for number in range(300)), request("/t", large))
        assert [(await talker.receive()).status for _ in range(301)] == [202] * 301
    assert [each.data for each in port.arrivals] == [*(b"%d" % number for number in range(300)), large]


async def test_http_1_1_is_agreed_upon_and_http_2_is_not_spoken(secured, listening, dial):
    context = secured.device()
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with listening(MemoryPort(), **secured.http_settings()) as server:
        async with dial(server, context) as talker:
            assert talker.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        async with dial(server, secured.device()) as talker:
            assert (await talker.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).status in {400, 505}


async def test_with_tls_plain_http_is_spoken_only_if_it_has_a_port(secured, listening):
    async with listening(MemoryPort(), **secured.http_settings()) as server:
        assert list(server.addresses) == ["https"]
    async with listening(MemoryPort(), **{**secured.http_settings(), "port": 0}) as server:
        assert list(server.addresses) == ["http", "https"]


async def test_the_certificate_is_read_again_when_it_changes(secured, listening, dial, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    settings = secured.http_settings()
    tls = settings["tls"]
    async with listening(MemoryPort(), **settings) as server:

        async def serial() -> str:
            async with dial(server, secured.trusting()) as talker:
                return talker.writer.get_extra_info("peercert")["serialNumber"]

        first = await serial()
        renewed = secured.site.files(Role.GATEWAY, "gw-1", hosts=[HERE])
        Path(tls.key).write_text("torn")
        assert await serial() == first, "a file that is half written is not used"
        shutil.copy(renewed.certificate, tls.certificate)
        shutil.copy(renewed.key, tls.key)
        os.utime(tls.key)
        assert await serial() != first


async def test_a_revoked_certificate_gets_in_no_more(secured, listening, dial):
    port = MemoryPort()
    async with listening(port, **secured.http_settings()) as server:
        stolen = secured.device("lamp-2")
        async with dial(server, stolen) as talker:
            assert (await talker.ask(request("/t"))).status == 202
        secured.site.ca.revoke("lamp-2", now_utc(), 1)
        with pytest.raises(OSError):
            async with dial(server, stolen) as talker:
                await talker.ask(request("/t"))
        async with dial(server, secured.device("lamp-3")) as talker:
            assert (await talker.ask(request("/t"))).status == 202
    assert [each.device for each in port.arrivals] == ["lamp-2", "lamp-3"]


LAN = {"host": "0.0.0.0", "port": 0}
FILES = {"certificate": "c", "key": "k"}
RULES = {
    "nobody logs in": (
        {**LAN, "plain_on_lan": True},
        r"http\.host = '0\.0\.0\.0': without a login only loopback .* http\.users",
    ),
    "in clear text": ({**LAN, "users": "u"}, r"http\.host = '0\.0\.0\.0': .* clear text.* plain_on_lan = true in \[http\]"),
    "TLS and no login": ({"tls": HttpTlsSettings(**FILES)}, r"\[http\.tls\] .* set `users` .*, or `ca`"),
    "a list of nobody": ({"users": "u", "tls": HttpTlsSettings(**FILES, crl="l")}, r"http\.tls\.crl needs http\.tls\.ca"),
    "no such file": ({"tls": HttpTlsSettings(**FILES, ca="none")}, r"http\.tls\.ca: cannot use none: No such file"),
}


@pytest.mark.parametrize(("settings", "says"), RULES.values(), ids=RULES)
async def test_settings_that_would_let_anybody_in_are_refused(settings, says):
    with pytest.raises(Misconfigured, match=says):
        await HttpListener(MemoryPort(), HttpSettings(**settings), DeviceRates(1, 1)).start()


async def test_connections_within_the_handshake_count_and_make_room(secured, listening, dial):
    async with listening(MemoryPort(), **secured.http_settings(), max_connections=3) as server:
        silent = [await asyncio.open_connection(*server.addresses["https"]) for _ in range(3)]
        await eventually(lambda: server.counters.connected == 3, "all are accepted")
        async with dial(server, secured.device()) as talker:
            assert (await talker.ask(request("/t"))).status == 202
            assert await within(silent[0][0].read(), "the oldest makes room") == b""
            assert server.counters.over_limit == 1
        for _, writer in silent:
            writer.close()


async def test_connection_beyond_the_limit_gets_an_error_over_tls_if_all_others_are_served(secured, listening, dial):
    port, tls = MemoryPort(), secured.device()
    port.hold()
    async with listening(port, **secured.http_settings(), max_connections=1) as server, dial(server, tls) as first:
        first.send(request("/t"))
        await port.until(lambda: port.waiting == 1, "it is put")
        async with dial(server, tls) as second:
            response = await second.receive()
            assert (response.status, response.headers["retry-after"]) == (503, "5")
            assert await second.closed() == b""
        port.release()
        assert (await first.receive()).status == 202


async def test_far_too_many_connections_are_closed_within_the_handshake(secured, listening, dial, monkeypatch):
    monkeypatch.setattr(listener, "LINGERING", 0)
    port, tls = MemoryPort(), secured.device()
    port.hold()
    async with listening(port, **secured.http_settings(), max_connections=1) as server, dial(server, tls) as first:
        first.send(request("/t"))
        await port.until(lambda: port.waiting == 1, "it is put")
        with pytest.raises(OSError):
            async with dial(server, tls):
                pass
        port.release()


async def test_a_client_that_reads_no_response_is_not_served_on(secured, listening, dial):
    port, count = MemoryPort(), 5000
    async with listening(port, **secured.http_settings()) as server, dial(server, secured.device()) as talker:
        await eventually(lambda: server._sockets, "it is accepted")
        (served,) = server._sockets
        served._transport.set_write_buffer_limits(high=1000)
        served._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        talker.writer.transport._ssl_protocol._transport.pause_reading()
        talker.send(request("/t") * count)
        await eventually(lambda: served.stalled, "its responses fill the buffers")
        await minutes_pass(lambda: not server._sockets, "it is closed")
        assert len(port.arrivals) < count


class TlsSocket:
    """A device that polls by a blocking socket. It decides when it reads, and how it closes."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        raw = socket.create_connection(address, timeout=LIMIT_S)
        self.socket = context.wrap_socket(raw, server_hostname=HERE)
        self.socket.sendall(request("/telemetry?hono-ttd=60"))

    def receive(self) -> bytes:
        """Read the response to its last byte, and nothing behind it."""
        found = b""
        while b"\r\n\r\n" not in found:
            found += self.socket.recv(1)
        head = found.lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while length:
            body = self.socket.recv(length)
            length -= len(body)
            found += body
        return found

    def unwrap(self) -> None:
        """Close in TLS, and wait until the gateway has done so too."""
        self.socket.unwrap()


ENDS = {
    "close": lambda client: client.socket.close(),
    "close_notify": lambda client: client.unwrap(),
    "close_notify and close": lambda client: (client.unwrap(), client.socket.close()),
}


@pytest.mark.fault("X8")
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_a_command_is_delivered_when_the_device_has_read_it_and_closed_tls_or_tcp(secured, listening, end):
    """A device that closes with an unread close_notify would reset the connection, and the command would be in doubt."""
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands, **secured.http_settings()) as server:
        client = await asyncio.to_thread(TlsSocket, server.addresses["https"], secured.device("lamp-1"))
        await commands.until(lambda: "lamp-1" in commands.devices, "the device polls")
        commands.send(make_command("lamp-1", data=b"x" * 30_000))
        assert (await asyncio.to_thread(client.receive)).endswith(b"x" * 30_000)
        await asyncio.to_thread(end, client)
        await commands.until(lambda: commands.told, "the outcome is known")
        assert commands.told == [("taken", "CMD-1")]
        await eventually(lambda: server.counters.connected == 0, "it is closed")
        client.socket.close()


async def test_a_device_that_waits_for_the_end_of_tls_gets_it(secured, listening):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands, **secured.http_settings()) as server:
        client = await asyncio.to_thread(TlsSocket, server.addresses["https"], secured.device("lamp-1"))
        await commands.until(lambda: "lamp-1" in commands.devices, "the device polls")
        commands.send(make_command("lamp-1"))
        await asyncio.to_thread(client.receive)
        pass_time(last_response.CLOSE_NOTIFY_S)
        assert await asyncio.to_thread(client.socket.recv, 1) == b""
        client.socket.close()
        await commands.until(lambda: commands.told, "the outcome is known")
        assert commands.told == [("taken", "CMD-1")]


@pytest.mark.fault("X8")
async def test_a_device_that_reads_only_a_part_of_a_command_leaves_it_in_doubt(secured, listening):
    commands = MemoryCommands()
    async with listening(MemoryPort(), commands, **secured.http_settings()) as server:
        client = await asyncio.to_thread(TlsSocket, server.addresses["https"], secured.device("lamp-1"))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await commands.until(lambda: "lamp-1" in commands.devices, "the device polls")
        commands.send(make_command("lamp-1", data=bytes(250_000)))
        await asyncio.to_thread(client.socket.recv, 100)
        client.socket.close()
        await commands.until(lambda: commands.told, "the outcome is known")
        assert commands.told == [("lost", "CMD-1")]


async def test_a_device_that_ends_tls_after_its_request_gets_the_response(secured, listening, dial):
    """The end of TLS is the end of what it sends, not of what it reads (RFC 8446, section 6.1)."""
    port = MemoryPort()
    port.hold()
    async with listening(port, **secured.http_settings()) as server:
        raw = await asyncio.to_thread(socket.create_connection, server.addresses["https"], LIMIT_S)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = secured.device().wrap_bio(incoming, outgoing, server_hostname=HERE)

        def talk(act) -> bytes:
            while True:
                try:
                    return act()
                except ssl.SSLWantReadError:
                    if data := outgoing.read():
                        raw.sendall(data)
                    incoming.write(raw.recv(65_536))

        await asyncio.to_thread(talk, client.do_handshake)
        client.write(request("/t"))
        with contextlib.suppress(ssl.SSLWantReadError):
            client.unwrap()
        raw.sendall(outgoing.read())
        await port.until(lambda: port.waiting == 1, "it is put")
        await eventually(lambda: all(each._requests.serving.eof for each in server._sockets), "the end is noticed")
        port.release()
        assert (await asyncio.to_thread(talk, lambda: client.read(4096))).startswith(b"HTTP/1.1 202 ")
        raw.close()


@pytest.mark.fault("S9")
async def test_a_deleted_user_is_refused_on_its_open_connection(secured, listening, dial, monkeypatch):
    monkeypatch.setattr(tls_files, "QUIET_S", 0)
    async with listening(MemoryPort(), **secured.http_settings()) as server, dial(server, secured.trusting()) as talker:
        assert (await talker.ask(request("/t", authorization=LAMP))).status == 202
        password_file(Path(secured.users).parent, hub="one")
        assert (await talker.ask(request("/t", authorization=LAMP))).status == 401


async def test_a_certificate_does_not_make_the_password_of_another_device_its_own(secured, listening, dial):
    port = MemoryPort()
    hub = basic("hub", PASSWORD.decode())
    async with listening(port, **secured.http_settings(acl={"hub": ["*"]})) as server:
        async with dial(server, secured.device("lamp-2")) as talker:
            assert (await talker.ask(request("/t//press-1", authorization=hub))).status == 403
        async with dial(server, secured.trusting()) as talker:
            assert (await talker.ask(request("/t//press-1", authorization=hub))).status == 202
    assert [each.device for each in port.arrivals] == ["press-1"]
