"""From a sensor's PUBLISH to the PUBLISH that a device on the site gets: a rule's command, beside mosquitto's plain forward.

One message at a time, at QoS 1, over loopback, both systems in turn. The gateway syncs the event and the command to the disk
before the device gets it, and `SENDING` before that; mosquitto forwards from memory. The gateway has no bridge.
"""

import asyncio
import time
from pathlib import Path

from processes import BIN, Bench, gateway_settings, port_of, quantile

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connect, Publish
from fogline_edge.adapters.mqtt.protocol.primitives import V5, PacketType
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.kafka_broker import free_port
from fogline_lab.mosquitto import find_mosquitto, write_broker
from fogline_lab.supervisor import wait_for_port

MESSAGES = 300
PAUSE_S = 0.02
RULE = """
[[rules.react]]
name = "switch"
device = "sensor"
when = "event.value.temperature > 26.0"
every = true
per_minute = 6000
burst = 1000
then = [{ command = "switch", device = "lamp", json = { on = true }, reply = false }]
"""
READING = b'{"temperature": 27.5, "humidity": 40, "battery": 97}'


def measure(bench: Bench) -> dict[str, float]:
    """Both systems in turn."""
    found: dict[str, float] = {}
    for name, run in (("gateway", _gateway), ("mosquitto", _mosquitto)):
        bench.say(f"reaction, {name}")
        times_ms = run(bench)
        found |= {f"reaction.{name}_p50": quantile(times_ms, 0.5), f"reaction.{name}_p99": quantile(times_ms, 0.99)}
    return found


def _gateway(bench: Bench) -> list[float]:
    folder = bench.subfolder("reaction")
    settings = gateway_settings(folder, "gw", free_port(), more=[RULE])
    with bench.child("reaction", BIN / "fogline-edge", "run", "--insecure-dev", "--config", settings) as gateway:
        return asyncio.run(_times_ms(port_of(gateway.next_line()["mqtt"]), "telemetry", "command///req/#"))


def _mosquitto(bench: Bench) -> list[float]:
    port, folder = free_port(), bench.subfolder("reaction-mosquitto")
    with bench.child("mosquitto", find_mosquitto(), "-c", _config(folder, port), json_lines=False) as broker:
        wait_for_port(broker, port, 30.0)
        return asyncio.run(_times_ms(port, "telemetry", "telemetry"))


def _config(folder: Path, port: int) -> Path:
    return write_broker(folder, port)


async def _times_ms(port: int, topic: str, subscribed: str) -> list[float]:
    """Return the time of each message from the sensor to the lamp, in milliseconds."""
    sensor, lamp = await _connected("sensor", port), await _connected("lamp", port)
    await lamp.subscribe(subscribed)
    found = []
    for number in range(1, MESSAGES + 1):
        began = time.monotonic()
        await sensor.publish(topic, READING, number=number)
        got = await lamp.receive()
        found.append((time.monotonic() - began) * 1000)
        assert isinstance(got, Publish), got
        await lamp.send(Ack(kind=PacketType.PUBACK, packet_id=got.packet_id))
        await sensor.receive()
        await asyncio.sleep(PAUSE_S)  # one message at a time: the device's own pace
    return found


async def _connected(client: str, port: int) -> MqttWire:
    wire = MqttWire(*await asyncio.open_connection("127.0.0.1", port), V5)
    await wire.send(Connect(version=V5, client_id=client))
    await wire.receive()
    return wire
