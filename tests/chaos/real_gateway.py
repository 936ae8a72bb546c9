"""`fogline-edge run` as a child process, with a bridge that accepts everything and a small MQTT device in this process."""

import asyncio
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from fogline import address, hello
from fogline.amqp.driver import AmqpConnection, listen
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED
from fogline.amqp.wire import decode
from fogline.cancel import CancelRequest, encode_cancel
from fogline.codec import decode_batch, decode_range
from fogline.command import Command, encode_command
from fogline.event import Event
from fogline.message import Message
from fogline_edge.adapters.mqtt.protocol import packets
from fogline_edge.adapters.mqtt.protocol.framing import Framer
from fogline_edge.adapters.mqtt.protocol.packets import Connect, PacketType, Publish, Subscribe
from fogline_edge.status import read_status
from fogline_lab.amqp import within
from fogline_lab.mqtt_packets import encode
from fogline_lab.supervisor import ChildProcess, find_script, start_child, stop_children

V3 = 4
LIMIT_S = 60.0
SETTINGS = """
tenant = "acme"
gateway = "gw-1"
data = "{data}"
[uplink]
bridge = "127.0.0.1:{bridge}"
[mqtt]
port = 0
"""


class Gateway:
    """The gateway process; it may be started again and again."""

    def __init__(self, folder: Path, bridge: int) -> None:
        self.data = folder / "data"
        config = folder / "edge.toml"
        config.write_text(SETTINGS.format(data=self.data, bridge=bridge))
        self._process = ChildProcess(
            "gateway", [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config], folder / "edge.log"
        )

    async def start(self, point: str = "") -> int:
        """Start the gateway, which kills itself at `point` if there is one. Returns the port of its MQTT listener."""
        ready = await start_child(self._process, LIMIT_S, crash_at=point)
        return int(ready["mqtt"].rpartition(":")[2])

    async def died(self) -> bool:
        """Return True if the gateway ended as if it had been killed."""
        return await asyncio.to_thread(self._process.wait, LIMIT_S) == -signal.SIGKILL

    async def stop(self) -> dict:
        """Stop the gateway in order. Returns its status: the events that it has stored and sent."""
        await stop_children(self._process)
        assert await asyncio.to_thread(self._process.wait, LIMIT_S) in (0, -signal.SIGKILL)
        return read_status(self.data)


class Bridge:
    """Accepts everything. `came`: every event each time that it came, by stream and sequence."""

    def __init__(self) -> None:
        self.came: list[tuple[tuple[str, int], Event]] = []
        self._marks: dict[str, hello.Mark] = {}
        self._places: dict[object, object] = {}
        self._control = None
        self._changed = asyncio.Event()

    async def serve(self) -> int:
        self._server = await listen("127.0.0.1", 0, lambda: AmqpConnection(Engine("bridge", server=True), self))
        return self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()

    async def until(self, condition, what: str):
        """Looked at whenever something came."""

        async def wait():
            while not (found := condition()):
                self._changed.clear()
                await self._changed.wait()
            return found

        return await within(wait(), what, LIMIT_S)

    async def command(self, command: Command):
        """Hand a command over; its outcome, when there is one."""
        return await self._send(encode_command(command))

    async def cancel(self, request: CancelRequest):
        """Hand a request to cancel over; its outcome, when there is one."""
        return await self._send(encode_cancel(request))

    async def _send(self, message: Message):
        await self.until(lambda: self._control is not None and not self._control.closed, "no gateway says hello")
        return self._control.send(message)

    def events(self, adapter: str = "mqtt") -> Counter:
        """Count the arrivals of each event, by its position and id."""
        return Counter((place, event.id) for place, event in self.came if event.adapter == adapter)

    def replies(self) -> list[tuple[str | None, str | None]]:
        """Command and state of each reply."""
        return sorted({(event.commandid, event.commandstate) for _, event in self.came if event.commandid})

    def opened(self, connection, _peer) -> None:
        connection.accept()

    def link_requested(self, connection, link) -> None:
        self._places[link] = address.parse_address(link.address)
        self._control = connection.accept_link(link, credit=64) or self._control

    def received(self, connection, delivery, data) -> None:
        message = decode(data)
        connection.settle(delivery, ACCEPTED)
        connection.grant(delivery.link, 1)
        if isinstance(self._places[delivery.link], address.HelloAddress):
            body = self.welcome(hello.decode_hello(message.body))
            self._control.send(Message(body=body, correlation_id=message.correlation_id))
        else:
            span = decode_range(message)
            self._marks[span.stream] = hello.Mark(span.stream, span.last, span.last, span.chain.hex())
            events = decode_batch(span, message)
            self.came += [((event.stream, event.sequence), event) for event in events]
        self._changed.set()

    def welcome(self, asked: hello.Hello) -> bytes:
        """The answer to hello, as it travels."""
        marks = [self._marks.get(each.stream) or hello.Mark(each.stream) for each in asked.streams]
        return hello.encode_hello(hello.Welcome(protocol=1, shards=1, marks=marks, time_ms=time.time_ns() // 1_000_000))

    def link_closed(self, *_) -> None:
        self._changed.set()

    def closed(self, *_) -> None:
        self._control = None


class Device:
    """One connection of an MQTT 3.1.1 client, `lamp-1`, that keeps its session."""

    def __init__(self) -> None:
        self._framer = Framer(1_000_000, None)
        self.commands: list[str] = []

    async def connect(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        await self.ask(Connect(version=V3, client_id="lamp-1", clean_start=False), PacketType.CONNACK)

    async def take_commands(self) -> None:
        await self.ask(Subscribe(packet_id=9, filters=(("command///req/#", 0),)), PacketType.SUBACK)

    async def publish(self, topic: str, payload: bytes, *, dup: bool = False) -> None:
        """At QoS 1, always with the same packet id; until it is acknowledged."""
        await self.ask(Publish(topic=topic, payload=payload, qos=1, packet_id=7, dup=dup), PacketType.PUBACK)

    async def ask(self, packet, answer: PacketType) -> None:
        self._writer.write(encode(packet, V3))
        await self.until(answer)

    async def until(self, kind: PacketType) -> None:
        """Read until there is such a packet. Raises `ConnectionError`: the gateway is gone."""
        while True:
            while (found := self._framer.next_packet()) is not None:
                if found[0] >> 4 == PacketType.PUBLISH:
                    self.commands.append(packets.decode(*found, V3).topic.split("/")[4])
                if found[0] >> 4 == kind:
                    return
            data = await within(self._reader.read(65536), f"no {kind.name} came", LIMIT_S)
            if not data:
                raise ConnectionResetError("the gateway is gone")
            self._framer.feed(data)

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
