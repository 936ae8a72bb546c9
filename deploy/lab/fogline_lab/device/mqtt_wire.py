"""An MQTT client made of bytes: it sends and receives single packets, also wrong ones."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Packet, Ping, Publish, ServerPacket, Suback, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_lab.device.websocket_pipe import WebSocketPipe
from fogline_lab.mqtt_packets import decode, encode

LIMIT_S = 60.0


@dataclass
class MqttWire:
    """A connection of an MQTT client. `version`: its protocol level."""

    reader: asyncio.StreamReader | WebSocketPipe
    writer: asyncio.StreamWriter | WebSocketPipe
    version: int
    framer: Framer = field(default_factory=lambda: Framer(1_000_000, first=None))

    async def send(self, *packets: Packet | ServerPacket | bytes) -> None:
        """Write packets, or bytes, all at once."""
        self.writer.write(b"".join(each if isinstance(each, bytes) else encode(each, self.version) for each in packets))
        async with asyncio.timeout(LIMIT_S):
            await self.writer.drain()

    async def receive(self) -> Packet | ServerPacket | None:
        """Return the next packet, or `None` if the other side has ended the connection."""
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
        """Send one PUBLISH at QoS 1."""
        await self.send(Publish(topic=topic, payload=payload, qos=1, packet_id=number, **more))

    async def subscribe(self, *filters: str, qos: int = 1) -> None:
        """Subscribe, and check that it is granted."""
        await self.send(Subscribe(packet_id=1, filters=tuple((each, qos) for each in filters)))
        answer = await self.receive()
        assert isinstance(answer, Suback), answer
        assert answer.codes == (qos,) * len(filters)

    async def alive(self) -> None:
        """Check that the other side is there, and has handled all packets before."""
        await self.send(Ping(PacketType.PINGREQ))
        assert await self.receive() == Ping(PacketType.PINGRESP)

    def cut(self) -> None:
        """Abort the connection, as a lost network does."""
        self.writer.transport.abort()
