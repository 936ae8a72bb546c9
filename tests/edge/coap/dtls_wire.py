"""A device that speaks CoAP over DTLS, made of bytes, on a real socket."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from edge.coap.client import LIMIT_S
from edge.coap.dtls_talk import KEY, key_of
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.coap.wire import CoapMessage, decode, encode
from fogline_edge.adapters.port import CommandPort
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.listener_settings import CoapDtlsSettings
from fogline_edge.settings import CoapSettings
from fogline_lab.device.dtls_client import DtlsClient


def store_of(*devices: str) -> CredentialStore:
    return CredentialStore(key_of(each) for each in devices)


@asynccontextmanager
async def secured(
    port: Any, store: CredentialStore, commands: CommandPort | None = None, *, plain: int | None = None, **dtls: Any
) -> AsyncIterator[CoapListener]:
    settings = CoapSettings(port=plain, dtls=CoapDtlsSettings(host="127.0.0.1", port=0, **dtls))
    listener = CoapListener(port, settings, commands, credentials=store)
    await listener.start()
    try:
        yield listener
    finally:
        async with asyncio.timeout(LIMIT_S):
            await listener.close()


class SecureWire:
    """One client. `move` gives it another address."""

    def __init__(self, address: tuple[str, int], identity: str = "d1", key: bytes = KEY, **offered: Any) -> None:
        self.client = DtlsClient(identity, key, **offered)
        self.repeats = 0  # datagrams of the handshake that were sent again, after a second each
        self._address = address
        self.raw = self._socket()

    def _socket(self) -> socket.socket:
        raw = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        raw.setblocking(False)
        raw.connect(self._address)
        return raw

    def move(self) -> None:
        self.raw.close()
        self.raw = self._socket()

    async def handshake(self) -> bool:
        """Return True if the session is open, False if the gateway has refused it."""
        last = self.client.hello()
        self.raw.send(last)
        while not (self.client.is_open or self.client.alerts):
            answer = self.client.receive(await self._answer_to(last))
            if answer:
                last = answer
                self.raw.send(last)
        return self.client.is_open

    async def _answer_to(self, datagram: bytes) -> bytes:
        """Return the next datagram of the gateway. Sends the former one again each second without one."""
        for _ in range(round(LIMIT_S)):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    return await asyncio.get_running_loop().sock_recv(self.raw, 65_536)
            self.raw.send(datagram)
            self.repeats += 1
        raise AssertionError("the gateway does not answer")

    async def half_open(self) -> None:
        """Begin a handshake, and leave it at that."""
        hello = self.client.hello()
        self.raw.send(hello)
        second = self.client.receive(await self._answer_to(hello))
        self.raw.send(second)
        await self._answer_to(second)

    async def ask(self, message: CoapMessage) -> CoapMessage:
        self.raw.send(self.client.seal(encode(message)))
        return await self.receive()

    async def receive(self) -> CoapMessage:
        while not self.client.received:
            self.client.receive(await self._datagram())
        return decode(self.client.received.pop(0))

    async def ended(self) -> None:
        """Wait until the gateway has said something that ends the session."""
        while not self.client.alerts:
            self.client.receive(await self._datagram())

    async def _datagram(self) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            return await asyncio.get_running_loop().sock_recv(self.raw, 65_536)


@contextmanager
def secure_wire(address: tuple[str, int], identity: str = "d1", key: bytes = KEY, **offered: Any) -> Iterator[SecureWire]:
    wire = SecureWire(address, identity, key, **offered)
    try:
        yield wire
    finally:
        wire.raw.close()
