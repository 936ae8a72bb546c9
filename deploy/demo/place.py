"""Where the demo lives: its folder, its lock, its ports, the settings files of its parts."""

import fcntl
import os
import random
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.payload import Device
from fogline.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]
TENANT = "demo"
SHARDS = 4


@dataclass(frozen=True, slots=True)
class Ports:
    """What listens where, all on loopback. `mqtt`, `coap`: one for each gateway; `serving`: of devices that are servers."""

    kafka: int
    amqp: int
    mqtt: tuple[int, ...]
    coap: tuple[int, ...]
    serving: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """The folder `.fogline/demo` of the checkout."""

    folder: Path
    ports: Ports

    @property
    def logs(self) -> Path:
        """A log file for each part."""
        return self.folder / "logs"

    @property
    def cloud(self) -> Path:
        """Settings of bridge, flow and ledger."""
        return self.folder / "cloud.toml"

    @property
    def book(self) -> Path:
        """What devices were acknowledged."""
        return self.folder / "acknowledged"

    @property
    def effects(self) -> Path:
        """What devices did for commands."""
        return self.folder / "effects"

    @property
    def gateways(self) -> list[str]:
        """Names of the gateways as parts."""
        return [f"gateway-{number}" for number in range(1, len(self.ports.mqtt) + 1)]

    def edge(self, gateway: str) -> Path:
        """Settings of one gateway."""
        return self.folder / f"edge-{gateway.rpartition('-')[2]}.toml"

    def outbox(self, gateway: str) -> Path:
        """The folder of its outbox."""
        return self.folder / gateway


def take_folder(ports: Ports, devices: Sequence[Device], *, keep: bool) -> Place:
    """Lock the folder for this process, empty it (unless `keep`), write the settings. Raises `Misconfigured`.

    `devices`: those that serve get the ports for that, in their order.
    """
    folder = ROOT / ".fogline" / "demo"
    folder.parent.mkdir(exist_ok=True)
    lock = os.open(folder.parent / "demo.lock", os.O_RDWR | os.O_CREAT, 0o644)  # open for as long as the process lives
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misconfigured("another demo is running in this checkout; end it first") from None
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    place = Place(folder, ports)
    place.logs.mkdir(parents=True, exist_ok=True)
    place.cloud.write_text(_cloud(ports), "utf-8")
    serving = list(zip((each for each in devices if each.serves), ports.serving, strict=True))
    for index, gateway in enumerate(place.gateways):
        own = {device.name: port for device, port in serving if device.gateway == index}
        place.edge(gateway).write_text(_edge(gateway, ports, index, own), "utf-8")
    return place


def _cloud(ports: Ports) -> str:
    return f"""\
tenant = "{TENANT}"
shards = {SHARDS}

[kafka]
"bootstrap.servers" = "127.0.0.1:{ports.kafka}"

[bridge]
listen = "127.0.0.1:{ports.amqp}"

[flow]
tables = "tables"
checkpoint = "checkpoint"
master = "local[2]"
trigger_ms = 2000
"""


def _edge(gateway: str, ports: Ports, index: int, serving: Mapping[str, int]) -> str:
    settings = f"""\
tenant = "{TENANT}"
gateway = "{gateway}"
data = "{gateway}"

[uplink]
bridge = "127.0.0.1:{ports.amqp}"
statement_s = 5.0

[mqtt]
port = {ports.mqtt[index]}

[[mqtt.topics]]
topic = "plant/{{device}}/#"
content_type = "application/json"

[coap]
port = {ports.coap[index]}
"""
    for device, port in serving.items():
        settings += f"""
[[coap.devices]]
device = "{device}"
uri = "coap://127.0.0.1:{port}/do"
"""
    return settings


def choose_ports(*, kafka: int, amqp: int, mqtt: int, coap: int, gateways: int, serving: int) -> Ports:
    """The ports asked for, each 0 for any free one; further gateways take the ports after `mqtt` and `coap`.

    Raises `Misconfigured` if one is taken.
    """
    chosen: list[int] = []

    def choose(name: str, port: int) -> int:
        if port and not is_free(port):
            option = f"--{name.lower()}-port"
            raise Misconfigured(f"port {port} ({name}) is taken: end what listens there, or choose another with {option}")
        chosen.append(port or _free_port(chosen))
        return chosen[-1]

    return Ports(
        kafka=choose("Kafka", kafka),
        amqp=choose("AMQP", amqp),
        mqtt=tuple(choose("MQTT", mqtt and mqtt + more) for more in range(gateways)),
        coap=tuple(choose("CoAP", coap and coap + more) for more in range(gateways)),
        serving=tuple(choose("CoAP", 0) for _ in range(serving)),
    )


def is_free(port: int) -> bool:
    """Whether a server could listen there now, by TCP and by UDP."""
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port(taken: list[int]) -> int:
    """Below the range that outgoing connections use: a part that is killed must get its port again."""
    while True:
        port = random.randrange(20_000, 32_000)
        if port not in taken and is_free(port):
            return port
