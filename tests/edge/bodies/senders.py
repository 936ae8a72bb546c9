"""A device that sends one large body, over each protocol: in parts, so that something can happen in the middle.

`answer` is what the device gets: status and reason of HTTP, packet or code of MQTT 5, code and payload of CoAP.
"""

import asyncio
import contextlib
import json

from edge.bodies.gateway import BodyGateway
from edge.coap.client import Wire, block1, content_format, request
from edge.http.client import Talker
from fogline_edge.adapters.coap.wire import CoapMessage, Code, Option, uint
from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connect, Disconnect, Publish
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.mqtt_packets import encode

BLOCK = 1024
"""Sizes and parts of bodies are multiples of it, because CoAP sends blocks."""


class HttpSender:
    """`size`: Content-Length; chunked with 0."""

    def __init__(self, gateway: BodyGateway, body: bytes, device: str = "camera-1", *, key: str = "", size: int = 0) -> None:
        self._gateway, self._body, self._device, self._key = gateway, body, device, key
        self._size = size or len(body)
        self._sent = 0

    async def open(self) -> None:
        """Connect, and send the head."""
        self.talker = Talker(*await asyncio.open_connection(*self._gateway.listener.addresses["http"]))
        self._key = f"idempotency-key: {self._key}\r\n" if self._key else ""
        head = f"POST /telemetry//{self._device} HTTP/1.1\r\nhost: gw\r\n{self._key}content-length: {self._size}\r\n\r\n"
        self.talker.send(head.encode())

    async def send(self, upto: int) -> None:
        """Send the bytes up to this one."""
        self.talker.send(self._body[self._sent : upto])
        self._sent = upto

    async def answer(self) -> str:
        """Return the response."""
        response = await self.talker.receive()
        return "stored" if response.status == 202 else f"{response.status} {json.loads(response.body)['title']}"

    async def close(self) -> None:
        """Leave."""
        self.talker.writer.transport.abort()


class MqttSender:
    """A PUBLISH at QoS 1. `size`: of the payload, as the packet says."""

    def __init__(self, gateway: BodyGateway, body: bytes, device: str = "camera-1", *, key: str = "", size: int = 0) -> None:
        user = (("specversion", "1.0"), ("id", key)) if key else ()
        packet = Publish(topic="telemetry", payload=b"", qos=1, packet_id=7, properties=Properties(user=user))
        head = encode(packet, 5)  # its length, of one byte, is that without the payload
        length, number = b"", len(head) - 2 + (size or len(body))
        while number:
            number, digit = divmod(number, 128)
            length += bytes([digit | (128 if number else 0)])
        self._gateway, self._device, self._body = gateway, device, body
        self._head = head[:1] + length + head[2:]
        self._sent = 0

    async def open(self) -> None:
        """Connect, and send all but the payload."""
        self.wire = MqttWire(*await asyncio.open_connection(*self._gateway.mqtt.addresses["mqtt"]), 5)
        await self.wire.send(Connect(version=5, client_id=self._device))
        await self.wire.receive()
        await self.wire.send(self._head)

    async def send(self, upto: int) -> None:
        """Send the bytes up to this one, as far as the gateway reads them."""
        self.wire.writer.write(self._body[self._sent : upto])
        self._sent = upto

    async def answer(self) -> str:
        """Return what the gateway says."""
        packet = await self.wire.receive()
        if isinstance(packet, Disconnect):
            return f"0x{packet.code:02x}"
        return "stored" if isinstance(packet, Ack) and not packet.code else repr(packet)

    async def close(self) -> None:
        """Leave."""
        self.wire.cut()


class CoapSender:
    """A PUT with Block1. `size`: Size1. A part is sent by a task, since a block may have to wait for its response."""

    def __init__(self, gateway: BodyGateway, body: bytes, device: str = "camera-1", *, key: str = "", size: int = 0) -> None:
        del key  # it has none: the endpoint and the Message ID tell a retransmission
        self._gateway, self._body, self._device, self._size = gateway, body, device, size
        self._sent = 0
        self._last: CoapMessage | None = None
        self._sending: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make a socket."""
        self.wire = Wire(self._gateway.coap.address)

    async def send(self, upto: int) -> None:
        """Send the blocks up to this byte, until one gets an error."""
        if self._sending is not None:
            await self._sending
        self._sending = asyncio.create_task(self._blocks(upto))

    async def answer(self) -> str:
        """Return the response to the last block that got one."""
        assert self._sending is not None
        await self._sending
        assert self._last is not None
        code = Code(self._last.code)
        return "stored" if code == Code.CHANGED else f"{code.dotted} {self._last.payload.decode()}".strip()

    async def close(self) -> None:
        """Leave."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        self.wire.raw.close()

    async def _blocks(self, upto: int) -> None:
        while self._sent < upto and (self._last is None or self._last.code == Code.CONTINUE):
            await self.block(self._sent // BLOCK, more=self._sent + BLOCK < len(self._body))
            self._sent += BLOCK

    async def block(self, number: int, *, more: bool, mid: int | None = None) -> None:
        """Send one block."""
        options = [block1(number, 6, more=more), content_format(42)]
        if self._size and not number:
            options.append((int(Option.SIZE1), uint(self._size)))
        payload = self._body[number * BLOCK : (number + 1) * BLOCK]
        self._last = await self.wire.ask(request(f"t/acme/{self._device}", payload, mid or number + 1, options=options))


Sender = HttpSender | MqttSender | CoapSender
SENDERS = {"http": HttpSender, "mqtt": MqttSender, "coap": CoapSender}


@contextlib.asynccontextmanager
async def sending(kind: type[Sender], gateway: BodyGateway, body: bytes, *args: str, **more):
    """Open a sender, and close it at the end."""
    sender = kind(gateway, body, *args, **more)
    await sender.open()
    try:
        yield sender
    finally:
        await sender.close()
