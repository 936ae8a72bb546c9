"""Peers that do not prove their names, or never end their handshake."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

from fogline_cloud.authority.certificates import Role, now_utc
from fogline_edge.adapters.mqtt.protocol.packets import Connect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_lab.amqp import within
from fogline_lab.credentials.mqtt_tls_files import MqttTlsFiles, showing, tls_1_1
from fogline_lab.mqtt_packets import encode

GREETING = [Connect(version=V5, client_id="evil"), Publish(topic="t//hub", payload=b"evil", qos=1, packet_id=1)]
HELLO = bytes.fromhex("160301020001000164")  # the first bytes of a ClientHello of 512 bytes
Peer = Callable[[MqttTlsFiles, tuple[str, int]], Awaitable[None]]


def with_bytes(data: bytes) -> Peer:
    """A peer that sends these bytes and waits for the end."""

    async def act(_: MqttTlsFiles, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        await converse(reader, writer, data)

    return act


def with_tls(make: Callable[[MqttTlsFiles], ssl.SSLContext], **login) -> Peer:
    """A peer that speaks TLS, and at once all that it would say if it got in."""
    made: dict[MqttTlsFiles, ssl.SSLContext] = {}
    greeting = [Connect(version=V5, client_id="evil", **login), GREETING[1]]

    async def act(secured: MqttTlsFiles, address: tuple[str, int]) -> None:
        if secured not in made:
            made[secured] = make(secured)
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*address, ssl=made[secured])
            await converse(reader, writer, b"".join(encode(each, V5) for each in greeting))

    return act


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(OSError):
        writer.write(data)
        await within(reader.read(), "the connection is not ended")
    writer.transport.abort()


def revoked(secured: MqttTlsFiles) -> ssl.SSLContext:
    context = secured.device("lamp-7")
    secured.site.ca.revoke("lamp-7", now_utc(), 1)
    return context


def of_role(role: Role) -> Callable[[MqttTlsFiles], ssl.SSLContext]:
    return lambda secured: showing(secured.site.files(role, "hub"))


PLAIN = b"".join(encode(each, V5) for each in GREETING)
LATE = "the TLS handshake did not end in time"
SILENT = {"silent": with_bytes(b""), "half a hello": with_bytes(HELLO)}
REFUSED: dict[str, tuple[Peer, str]] = {
    "silent": (SILENT["silent"], LATE),
    "half a hello": (SILENT["half a hello"], LATE),
    "plain text": (with_bytes(PLAIN), "the peer does not speak TLS"),
    "HTTP": (with_bytes(b"GET / HTTP/1.1\r\n\r\n"), "the peer does not speak TLS (it sent an HTTP request)"),
    "TLS 1.1": (with_tls(lambda secured: tls_1_1(secured.trusting())), "the peer offers only versions before TLS 1.2"),
    "another authority's": (with_tls(lambda secured: secured.device("hub", ca=secured.other())), "certificate is refused"),
    "expired": (with_tls(lambda secured: secured.device("hub", later_days=-2)), "certificate has expired"),
    "not yet valid": (with_tls(lambda secured: secured.device("hub", later_days=1)), "certificate is not yet valid"),
    "revoked": (with_tls(revoked), "certificate revoked"),
    "a gateway's": (with_tls(of_role(Role.GATEWAY)), "the certificate of 'hub' is for role 'gateway'"),
    "an operator's": (with_tls(of_role(Role.OPERATOR)), "the certificate of 'hub' is for role 'operator'"),
    "no device's name": (with_tls(lambda secured: secured.device("a\x07b")), "user"),
    "no login": (with_tls(MqttTlsFiles.trusting), "no user name and password"),
    "wrong password": (with_tls(MqttTlsFiles.trusting, username="hub", password=b"guess"), "wrong user name or password"),
}
