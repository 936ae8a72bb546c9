"""S5: thousands of devices that do not prove their names, or stay silent, leave nothing at a gateway process.

They come to all its ports with TLS: MQTT, MQTT over WebSocket, and HTTPS.
"""

import asyncio
import contextlib
import json
import ssl
from itertools import cycle, islice

import pytest

from edge.mqtt.refused_peers import REFUSED
from edge.sockets.bad_peers import GARBAGE, HELLO, NO_HANDSHAKE, SILENT, Peer, with_bytes, with_tls
from fogline_edge.adapters.mqtt.protocol.packets import Connack, Connect
from fogline_edge.adapters.mqtt.protocol.primitives import V5
from fogline_edge.operate.status import read_events
from fogline_lab.amqp import within
from fogline_lab.credentials.mqtt_tls_files import HERE, PASSWORD, MqttTlsFiles
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.device.websocket_pipe import opening
from fogline_lab.gateway.gateway_process import LIMIT_S
from fogline_lab.memory import resident_bytes
from fogline_lab.mqtt_packets import puback
from fogline_lab.supervisor import ChildProcess, find_script, kill_child, start_child
from fuzz import live

STORM, ROUND, MOST_ROUNDS = 10_000, 5_000, 6
FLAT_BYTES = 1_000_000
"""A round that adds less shows that nothing stays: Python's memory grows for a while, and then no more."""
SLOTS = 200
SETTINGS = """
tenant = "acme"
gateway = "gw-1"
data = "data"
[uplink]
bridge = "127.0.0.1:1"
retry_s = 60
[mqtt]
users = "{users}"
max_connections = {slots}
connect_timeout_s = 10.0
[mqtt.tls]
host = "127.0.0.1"
port = 0
certificate = "{tls.certificate}"
key = "{tls.key}"
ca = "{tls.ca}"
crl = "{tls.crl}"
[mqtt.websocket]
host = "127.0.0.1"
port = 0
[http]
users = "{users}"
max_connections = {slots}
[http.tls]
host = "127.0.0.1"
port = 0
certificate = "{tls.certificate}"
key = "{tls.key}"
ca = "{tls.ca}"
crl = "{tls.crl}"
"""
GET = b"GET / HTTP/1.1\r\nHost: gw\r\n\r\n"
PEERS: list[tuple[str, Peer]] = [
    *(("mqtts", peer) for name, (peer, _) in REFUSED.items() if name not in SILENT),
    *((port, with_tls(make, GET)) for make, _ in NO_HANDSHAKE.values() for port in ("https", "mqtt-wss")),
    *((port, with_bytes(sent)) for sent in (GET, GARBAGE) for port in ("https", "mqtt-wss")),
    ("https", with_tls(MqttTlsFiles.trusting, GET)),
    ("mqtt-wss", with_tls(MqttTlsFiles.trusting, GET)),
    ("mqtt-wss", with_tls(MqttTlsFiles.trusting, opening(Sec_WebSocket_Protocol=None))),
    ("mqtt-wss", with_tls(MqttTlsFiles.trusting, opening(x="y" * 20_000))),
]


def gateway(secured: MqttTlsFiles) -> ChildProcess:
    config = secured.folder / "edge.toml"
    config.write_text(SETTINGS.format(users=secured.users, slots=SLOTS, tls=secured.settings()["tls"]))
    command = [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config]
    return ChildProcess("gateway", command, secured.folder / "gateway.log")


async def good_device(port: int, context: ssl.SSLContext) -> float:
    """A device at another address connects and publishes; returns how long that took until its PUBACK."""
    began = asyncio.get_running_loop().time()
    opening = asyncio.open_connection(HERE, port, ssl=context, local_addr=("127.0.0.2", 0))
    wire = MqttWire(*await within(opening, "no handshake"), V5)
    await wire.send(Connect(version=V5, client_id="good", username="hub", password=PASSWORD))
    assert isinstance(await wire.receive(), Connack)
    await wire.publish("telemetry", b"{}")
    assert await wire.receive() == puback(1)
    took = asyncio.get_running_loop().time() - began
    wire.cut()
    return took


async def silent_sockets(port: int, count: int) -> None:
    """Open sockets that never end their handshake, and keep each until the gateway closes it."""

    async def one(number: int) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(HERE, port)
            writer.write(HELLO if number % 2 else b"")
            await within(reader.read(), "a silent socket stays open", LIMIT_S)
            writer.transport.abort()

    await asyncio.gather(*map(one, range(count)))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.fault("S5")
async def test_10000_refused_devices_leave_nothing_behind_and_a_good_one_is_served(folder):
    secured = MqttTlsFiles(folder)
    program, good = gateway(secured), secured.trusting()
    try:
        ready = await start_child(program, LIMIT_S)
        ports = {name: int(ready[name].rpartition(":")[2]) for name in ("mqtts", "mqtt-wss", "https")}
        port = ports["mqtts"]

        async def storm(count: int) -> int:
            _, done = await asyncio.gather(
                silent_sockets(port, 2 * SLOTS),
                live.for_each(islice(cycle(PEERS), count), lambda each: each[1](secured, (HERE, ports[each[0]]))),
            )
            return done

        await storm(len(PEERS))
        usual = await good_device(port, good)
        before = await live.census(program)
        running = asyncio.create_task(storm(STORM))
        took = await good_device(port, good)
        assert not running.done(), "the good device is served after all that are refused"
        count = await running
        grown = [resident_bytes(program.pid)]
        while len(grown) == 1 or (grown[-1] - grown[-2] >= FLAT_BYTES and len(grown) <= MOST_ROUNDS):
            count += await storm(ROUND)
            grown.append(resident_bytes(program.pid))
        await live.settled(program, before)
        print(f"{count} refused; a good device in {took:.2f} s beside them, {usual:.2f} s before")
        log = program.log.read_text("utf-8", "replace")
        assert live.unhandled(log) == []
        assert log.count("the connection of") < 15 * len(PEERS)
        assert grown[-1] - grown[-2] < FLAT_BYTES, grown
        stored = [json.loads(each["body"]) for each in read_events(folder / "data", "event", 100)]
        events = [each for each in stored if each["type"] != "ledger"]
        assert [(each["source"], each["type"], each["data"]) for each in events] == [("/acme/devices/hub", "telemetry", {})] * 2
    finally:
        await kill_child(program)
