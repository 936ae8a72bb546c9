"""Peers of any listener that do not prove their names, or never end their TLS handshake."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable

from fogline_cloud.authority.certificates import Role, now_utc
from fogline_lab.amqp import within
from fogline_lab.credentials.mqtt_tls_files import MqttTlsFiles, showing, tls_1_1

HELLO = bytes.fromhex("160301020001000164")  # the first bytes of a ClientHello of 512 bytes
GARBAGE = bytes(range(255, 0, -1))
LATE = "the TLS handshake did not end in time"
Peer = Callable[[MqttTlsFiles, tuple[str, int]], Awaitable[None]]
MakeContext = Callable[[MqttTlsFiles], ssl.SSLContext]


def with_bytes(data: bytes) -> Peer:
    """A peer that sends these bytes and waits for the end."""

    async def act(_: MqttTlsFiles, address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        await converse(reader, writer, data)

    return act


def with_tls(make: MakeContext, greeting: bytes) -> Peer:
    """A peer that speaks TLS, and at once all that it would say if it got in."""
    made: dict[MqttTlsFiles, ssl.SSLContext] = {}

    async def act(secured: MqttTlsFiles, address: tuple[str, int]) -> None:
        if secured not in made:
            made[secured] = make(secured)
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*address, ssl=made[secured])
            await converse(reader, writer, greeting)

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


def of_role(role: Role) -> MakeContext:
    return lambda secured: showing(secured.site.files(role, "hub"))


SILENT = {"silent": with_bytes(b""), "half a hello": with_bytes(HELLO)}
NO_TLS: dict[str, tuple[Peer, str]] = {
    "silent": (SILENT["silent"], LATE),
    "half a hello": (SILENT["half a hello"], LATE),
    "garbage": (with_bytes(GARBAGE), "the peer does not speak TLS"),
}
NO_HANDSHAKE: dict[str, tuple[MakeContext, str]] = {
    "TLS 1.1": (lambda secured: tls_1_1(secured.trusting()), "the peer offers only versions before TLS 1.2"),
    "another authority's": (lambda secured: secured.device("hub", ca=secured.other()), "certificate is refused"),
    "expired": (lambda secured: secured.device("hub", later_days=-2), "certificate has expired"),
    "not yet valid": (lambda secured: secured.device("hub", later_days=1), "certificate is not yet valid"),
    "revoked": (revoked, "certificate revoked"),
}
"""TLS contexts of peers whose handshake fails, and what the log says of them."""
NO_DEVICE: dict[str, tuple[MakeContext, str]] = {
    "a gateway's": (of_role(Role.GATEWAY), "the certificate of 'hub' is for role 'gateway'"),
    "an operator's": (of_role(Role.OPERATOR), "the certificate of 'hub' is for role 'operator'"),
}
"""The same of peers with a certificate that is no device's."""
