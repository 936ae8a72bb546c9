"""A gateway process gets thousands of wrong packets, datagrams and requests from devices, and wrong words from its bridge."""

import asyncio
import itertools

import pytest

from fogline import address
from fogline.amqp.driver import AmqpConnection, listen
from fogline.amqp.engine import Engine
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, RELEASED, rejected
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ServerSecurity
from fogline.amqp.wire import decode
from fogline.commands.command import decode_command
from fogline_edge.adapters.mqtt.protocol.packets import Connect
from fogline_edge.adapters.mqtt.protocol.primitives import V3, V5
from fogline_lab.amqp import within
from fogline_lab.device.mqtt_lamp import MqttLamp
from fogline_lab.gateway.gateway_process import SETTINGS
from fogline_lab.kafka_broker import free_port
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import encode
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child
from fuzz import live
from fuzz.amqp_frames import CLIENT
from fuzz.control import COMMAND, QUESTION, WELCOME
from fuzz.devices import COAP, HTTP, MQTT
from fuzz.running import cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
EACH = 2000
LIES = 250
COAP_SETTINGS = "[coap]\nport = 0\nrate_s = 1000000\nburst = 1000000\nendpoint_rate_s = 1000000\nendpoint_burst = 1000000\n"
HTTP_SETTINGS = "[http]\nport = 0\nmax_connections = 200\n"
_names = itertools.count(1)


def gateway(folder, bridge: int, retry_s: float = 60.0) -> ChildProcess:
    config = folder / "edge.toml"
    text = (
        SETTINGS.format(data=folder / "data", bridge=bridge, name="gw-1", tenant="acme")
        + "max_connections = 200\n"
        + COAP_SETTINGS
        + HTTP_SETTINGS
    )
    config.write_text(text.replace("[mqtt]", f"retry_s = {retry_s}\nretry_cap_s = {retry_s}\n[mqtt]"))
    return ChildProcess(
        "gateway", [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config], folder / "gateway.log"
    )


def greeting(version: int) -> bytes:
    return encode(Connect(version=version, client_id=f"evil-{next(_names)}"), version)


async def good_device(port: int) -> float:
    """A device connects and publishes; returns how long that took until its PUBACK."""
    device = MqttLamp()
    began = asyncio.get_running_loop().time()
    await device.connect(port)
    await device.publish("telemetry", b"{}")
    took = asyncio.get_running_loop().time() - began
    await device.close()
    return took


class Datagrams(asyncio.DatagramProtocol):
    """Sends datagrams and waits until the last one is answered, so that nothing is lost in the socket's buffer."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def datagram_received(self, data: bytes, _address) -> None:
        if data[2:4] == b"\xff\xfe":
            self.answered.set()


async def datagrams(port: int, inputs) -> int:
    """Send each datagram; a ping after some of them, whose Reset says that they were read."""
    protocol = Datagrams()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: protocol, remote_addr=("127.0.0.1", port))
    count = 0
    while some := list(itertools.islice(inputs, 50)):
        protocol.answered.clear()
        for each in some:
            transport.sendto(each)
        transport.sendto(b"\x40\x00\xff\xfe")
        await within(protocol.answered.wait(), f"CoAP does not answer any more after {some[-1].hex()}")
        count += len(some)
    transport.close()
    return count


async def storm(mqtt: int, coap: int, http: int) -> str:
    told = []
    for decoder in MQTT:
        first = {"mqtt 3.1.1": V3, "mqtt 5": V5}.get(decoder.name)

        async def one(case, first=first) -> None:
            await live.converse(mqtt, (greeting(first) if first else b"") + case.data)

        told.append(f"{await live.for_each(cases(decoder, EACH), one)} of {decoder.name}")

    async def ask(case) -> None:
        await live.converse(http, case.data)

    told.append(f"{await live.for_each(cases(HTTP, EACH), ask)} of http")
    inputs = (case.data for case in cases(COAP[0], EACH) if len(case.data) < 60_000)
    told.append(f"{await datagrams(coap, inputs)} of coap")
    return ", ".join(told)


@pytest.mark.fault("S4")
async def test_fuzz_gateway_process(folder):
    """S4: wrong fields in every MQTT packet, CoAP option and HTTP request: no traceback, no lock-out, memory within 5 MB."""
    program = gateway(folder, 1)
    try:
        said = await start_child(program)
        ports = [int(said[name].rpartition(":")[2]) for name in ("mqtt", "coap", "http")]
        await good_device(ports[0])
        await storm(*ports)  # what a process does the first time takes memory of its own
        before, memory = await live.census(program), resident_bytes(program.pid)
        sent = await storm(*ports)
        took = await good_device(ports[0])
        await live.settled(program, before)
        grown = resident_bytes(program.pid) - memory
        print(f"{sent}; memory {grown / 1e6:+.1f} MB, a good device in {took:.2f} s")
        assert live.unhandled(program.log.read_text("utf-8", "replace")) == []
        assert grown < live.FLAT_BYTES
    finally:
        await kill_child(program)


class LyingBridge:
    """Answers each hello of a gateway with the next lie, and settles what comes in every way that there is."""

    def __init__(self, lies, commands) -> None:
        self.told = 0
        self.done = asyncio.Event()
        self._lies = lies
        self._commands = commands
        self._outcomes = itertools.cycle(
            [ACCEPTED, RELEASED, MODIFIED, rejected(DECODE_ERROR, "no"), rejected("\x1b", "x" * 9)]
        )
        self._controls = {}

    def opened(self, connection, _peer) -> None:
        connection.accept()

    def link_requested(self, connection, link) -> None:
        sender = connection.accept_link(link, credit=16, share=Share())
        if sender is not None:
            self._controls[connection] = sender

    def received(self, connection, delivery, data) -> None:
        connection.settle(delivery, next(self._outcomes), credit=1)
        if delivery.link.address != str(address.HelloAddress("acme")):
            return
        case = next(self._lies, None)
        if case is None:
            self.done.set()
            connection.close()
            return
        self.told += 1
        own = decode(data).correlation_id
        assert own is not None
        control = self._controls[connection]
        for told in (case.data.replace(QUESTION, own.bytes), *(e.data for e in itertools.islice(self._commands, 5))):
            control.send_encoded(told)
        asyncio.get_running_loop().call_later(0.02, connection.close)

    def link_closed(self, *_) -> None:
        pass

    def closed(self, connection, _why) -> None:
        self._controls.pop(connection, None)


async def lie(port: int, lies, commands) -> int:
    """Let a bridge lie to the gateway until it has told everything."""
    bridge = LyingBridge(lies, commands)
    listener = await listen("127.0.0.1", port, lambda: AmqpConnection(Engine("bridge", security=ServerSecurity()), bridge))
    try:
        await within(bridge.done.wait(), "the gateway does not come back for the next lie", 300)
    finally:
        listener.close()
        await listener.wait_closed()
    return bridge.told


async def speak(port: int, inputs) -> int:
    """Be a bridge that says wrong frames, one connection of the gateway after the other."""
    waiting, count, done = iter(inputs), 0, asyncio.Event()

    async def serve(reader, writer) -> None:
        nonlocal count
        case = next(waiting, None)
        if case is None:
            done.set()
            writer.close()
            return
        count += 1
        try:
            writer.write(live.frames_of(case))
            await writer.drain()
            await asyncio.wait_for(reader.read(65_536), 1)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await within(done.wait(), "the gateway does not come back for the next frames", 300)
    server.close()
    return count


def wrong_commands(count: int):
    """Commands that are none. Those that are taken wait for their device, and so take memory by right."""
    for case in cases(COMMAND, count):
        try:
            decode_command(decode(case.data))
        except Exception:  # noqa: BLE001 - whatever it is, the gateway has to survive it
            yield case


@pytest.mark.fault("S4")
async def test_fuzz_gateway_by_its_bridge(folder):
    """S4: a bridge lies in frames, answers to hello, commands and outcomes: no traceback, flat memory, devices are served."""
    port = free_port()
    program = gateway(folder, port, retry_s=0.02)
    try:
        mqtt = int((await start_child(program))["mqtt"].rpartition(":")[2])
        counts = []
        for turn in range(2):
            if turn:
                memory = resident_bytes(program.pid)
            frames = await speak(port, cases(CLIENT, LIES))
            lies = await lie(port, cases(WELCOME, LIES), wrong_commands(12 * LIES))
            took = await good_device(mqtt)
            counts.append((frames, lies))
        grown = resident_bytes(program.pid) - memory
        print(
            f"{counts} connections with wrong frames and answers; memory {grown / 1e6:+.1f} MB, a good device in {took:.2f} s"
        )
        assert live.unhandled(program.log.read_text("utf-8", "replace")) == []
        assert grown < live.FLAT_BYTES
    finally:
        await kill_child(program)
