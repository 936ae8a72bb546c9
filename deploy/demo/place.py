"""Where the demo lives: its folder, its lock, its ports, the settings files of its parts."""

import fcntl
import os
import random
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from fogline.errors import Misconfigured

ROOT = Path(__file__).resolve().parents[2]
TENANT = "demo"
SHARDS = 4


@dataclass(frozen=True, slots=True)
class Ports:
    """What listens where, all on loopback. `mqtt`: one for each gateway."""

    kafka: int
    amqp: int
    mqtt: tuple[int, ...]


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
    def gateways(self) -> list[str]:
        """Names of the gateways as parts."""
        return [f"gateway-{number}" for number in range(1, len(self.ports.mqtt) + 1)]

    def edge(self, gateway: str) -> Path:
        """Settings of one gateway."""
        return self.folder / f"edge-{gateway.rpartition('-')[2]}.toml"

    def outbox(self, gateway: str) -> Path:
        """The folder of its outbox."""
        return self.folder / gateway


def take_folder(ports: Ports, *, keep: bool) -> Place:
    """Lock the folder for this process, empty it (unless `keep`), write the settings. Raises `Misconfigured`."""
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
    for gateway, port in zip(place.gateways, ports.mqtt, strict=True):
        place.edge(gateway).write_text(_edge(gateway, port, ports.amqp), "utf-8")
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


def _edge(gateway: str, mqtt: int, amqp: int) -> str:
    return f"""\
tenant = "{TENANT}"
gateway = "{gateway}"
data = "{gateway}"

[uplink]
bridge = "127.0.0.1:{amqp}"
statement_s = 5.0

[mqtt]
port = {mqtt}

[[mqtt.topics]]
topic = "plant/{{device}}/#"
content_type = "application/json"
"""


def choose_ports(*, kafka: int, amqp: int, mqtt: int, gateways: int) -> Ports:
    """The ports asked for, each 0 for any free one; further gateways take the ports after `mqtt`.

    Raises `Misconfigured` if one is taken.
    """
    chosen: list[int] = []
    for name, port in (("Kafka", kafka), ("AMQP", amqp), *(("MQTT", mqtt + more if mqtt else 0) for more in range(gateways))):
        if port and not is_free(port):
            option = f"--{name.lower()}-port"
            raise Misconfigured(f"port {port} ({name}) is taken: end what listens there, or choose another with {option}")
        chosen.append(port or _free_port(chosen))
    return Ports(chosen[0], chosen[1], tuple(chosen[2:]))


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port(taken: list[int]) -> int:
    """Below the range that outgoing connections use: a part that is killed must get its port again."""
    while True:
        port = random.randrange(20_000, 32_000)
        if port not in taken and is_free(port):
            return port
