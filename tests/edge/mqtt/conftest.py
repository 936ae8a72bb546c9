"""Errors that the loop catches fail a test. `listening` gives it a listener on a free port, `dial` a client."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from coroutines import run_test
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect, Packet, Ping, Publish, ServerPacket, Suback, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_edge.adapters.mqtt.server.listener import MqttListener
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.settings import MqttSettings
from fogline_lab.mqtt_packets import decode, encode

LIMIT_S = 20.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem, strict=True)


@dataclass
class Wire:
    """A client made of bytes. `version` is what it speaks."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    version: int
    framer: Framer = field(default_factory=lambda: Framer(1_000_000, first=None))

    async def send(self, *packets: Packet | ServerPacket | bytes) -> None:
        """Write them all at once."""
        self.writer.write(b"".join(each if isinstance(each, bytes) else encode(each, self.version) for each in packets))
        async with asyncio.timeout(LIMIT_S):
            await self.writer.drain()

    async def receive(self) -> Packet | ServerPacket | None:
        """The next packet; `None` if the other side has ended the connection."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                packet = self.framer.next_packet()
                if packet is not None:
                    return decode(*packet, self.version)
                try:
                    data = await self.reader.read(65_536)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self.framer.feed(data)

    async def publish(self, topic: str, payload: bytes = b"x", number: int = 1, **more: Any) -> None:
        """One PUBLISH at QoS 1."""
        await self.send(Publish(topic=topic, payload=payload, qos=1, packet_id=number, **more))

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Subscribe, and see it granted."""
        await self.send(Subscribe(packet_id=1, filters=tuple((each, qos) for each in filters)))
        answer = await self.receive()
        assert isinstance(answer, Suback), answer
        assert answer.codes == (qos,) * len(filters)

    async def alive(self) -> None:
        """The other side is there, and has handled all that was sent before."""
        await self.send(Ping(PacketType.PINGREQ))
        assert await self.receive() == Ping(PacketType.PINGRESP)

    def cut(self) -> None:
        """End as a lost network would."""
        self.writer.transport.abort()


@pytest.fixture
def dial():
    """Opens a client, and gives it with the CONNACK that it got; without a client id nothing is sent at first.

    `tls`: it speaks TLS.
    """

    @asynccontextmanager
    async def dial(
        listener: MqttListener,
        client_id: str | None = None,
        *,
        version: int = 5,
        tls: ssl.SSLContext | None = None,
        **connect: Any,
    ) -> AsyncIterator[tuple[Wire, Packet | ServerPacket | None]]:
        address = listener.addresses["mqtt" if tls is None else "mqtts"]
        async with asyncio.timeout(LIMIT_S):
            wire = Wire(*await asyncio.open_connection(*address, ssl=tls), version)
        answer: Packet | ServerPacket | None = None
        if client_id is not None:
            await wire.send(Connect(version=version, client_id=client_id, **connect))
            answer = await wire.receive()
            assert isinstance(answer, Connack), answer
        try:
            yield wire, answer
        finally:
            wire.cut()

    return dial


@pytest.fixture
def listening():
    """Opens a listener for a port, with these settings of MQTT, and for commands."""

    def listening(
        port: Port, commands: CommandPort | None = None, /, **settings: Any
    ) -> AbstractAsyncContextManager[MqttListener]:
        @asynccontextmanager
        async def listening() -> AsyncIterator[MqttListener]:
            listener = MqttListener(port, MqttSettings(**{"port": 0, **settings}), commands)
            await listener.start()
            try:
                yield listener
            finally:
                async with asyncio.timeout(LIMIT_S):
                    await listener.close()

        return listening()

    return listening
