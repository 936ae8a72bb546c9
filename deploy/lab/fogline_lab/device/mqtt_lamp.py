"""A small MQTT 3.1.1 device that keeps its session."""

import asyncio
from contextlib import suppress

from fogline_edge.adapters.mqtt.protocol import packets
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Connect, Packet, Publish, Subscribe
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_lab.amqp import within
from fogline_lab.mqtt_packets import encode

V3 = 4
LIMIT_S = 60.0


class MqttLamp:
    """One connection of client `lamp-1`. `commands`: the ids of the commands that came over it."""

    def __init__(self) -> None:
        self._framer = Framer(1_000_000, None)
        self.commands: list[str] = []

    async def connect(self, port: int) -> None:
        """Connect to a listener on this machine."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self.ask(Connect(version=V3, client_id="lamp-1", clean_start=False), PacketType.CONNACK)

    async def take_commands(self) -> None:
        """Subscribe to the device's commands."""
        await self.ask(Subscribe(packet_id=9, filters=(("command///req/#", 0),)), PacketType.SUBACK)

    async def publish(self, topic: str, payload: bytes, *, dup: bool = False) -> None:
        """Publish at QoS 1, always with the same packet id, and wait for the acknowledgement."""
        await self.ask(Publish(topic=topic, payload=payload, qos=1, packet_id=7, dup=dup), PacketType.PUBACK)

    async def ask(self, packet: Packet, answer: PacketType) -> None:
        """Send a packet, and read until a packet of the kind `answer` comes."""
        self._writer.write(encode(packet, V3))
        await self.until(answer)

    async def until(self, kind: PacketType) -> None:
        """Read until a packet of this kind comes. Raises `ConnectionError` if the gateway closes the connection."""
        while True:
            while (found := self._framer.next_packet()) is not None:
                if found[0] >> 4 == PacketType.PUBLISH:
                    published = packets.decode(*found, V3)
                    assert isinstance(published, Publish)
                    self.commands.append(published.topic.split("/")[4])
                if found[0] >> 4 == kind:
                    return
            data = await within(self._reader.read(65536), f"no {kind.name} came", LIMIT_S)
            if not data:
                raise ConnectionResetError("the gateway is gone")
            self._framer.feed(data)

    async def close(self) -> None:
        """Close the socket, without DISCONNECT."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
