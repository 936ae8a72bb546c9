"""Workspace of the demo or the soak: folder, lock, ports, and the settings files of the parts."""

import fcntl
import json
import os
import random
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.ble_payload import VALVE_PROFILE, BleDevice
from demo.ble_payload import settings as ble_settings
from demo.certificates import DAYS, PASSWORD, USER, bridge_tables, make_certificates, operator_settings, uplink_tables
from demo.payload import Device
from fogline.errors import Misconfigured
from fogline_cloud.console.rendering import ROOT as PAGE
from fogline_cloud.settings import OperatorSettings

ROOT = Path(__file__).resolve().parents[2]
TENANT = "demo"
SHARDS = 4
BLE_RETRY_S = 2.0
"""Longest pause before a gateway retries a Bluetooth device."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of all listeners, on loopback.

    `amqp`: one for each bridge; `mqtt`, `coap`: one for each gateway; `serving`: of devices that are servers. `amqp_lines`:
    the ports of the lines to the bridges, and `coap_lines`: of the lines to the gateways' CoAP ports, if there are lines.
    `http`: of the API with the operator's page, `metrics`: of the first bridge's metrics, which the page reads, and
    `devices_http`: of the first gateway's HTTP for devices; 0: there is none.
    """

    kafka: int
    amqp: tuple[int, ...]
    mqtt: tuple[int, ...]
    coap: tuple[int, ...]
    serving: tuple[int, ...] = ()
    amqp_lines: tuple[int, ...] = ()
    coap_lines: tuple[int, ...] = ()
    http: int = 0
    metrics: int = 0
    devices_http: int = 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder in `.fogline` of the checkout. `ble`: the Bluetooth devices; empty: gateways have no Bluetooth.

    `secure`: gateways and operator connect over TLS. `stolen`: name of one more gateway, which is revoked during the run.
    """

    folder: Path
    ports: Ports
    ble: tuple[BleDevice, ...] = ()
    secure: bool = True
    stolen: str = ""

    @property
    def operator(self) -> OperatorSettings:
        """Settings of the operator."""
        return operator_settings(self.folder) if self.secure else OperatorSettings()

    @property
    def page(self) -> str:
        """How to get to the operator's page, for a person."""
        password = f" (name {USER}, password {(self.folder / PASSWORD).read_text('utf-8')})" if self.secure else ""
        return f"http://127.0.0.1:{self.ports.http}{PAGE}{password}"

    @property
    def logs(self) -> Path:
        """Folder of the log files, one for each part."""
        return self.folder / "logs"

    @property
    def cloud(self) -> Path:
        """Settings file of the first bridge, the flow and the ledger."""
        return self.folder / "cloud.toml"

    @property
    def acknowledged_file(self) -> Path:
        """File of the events that gateways acknowledged to devices."""
        return self.folder / "acknowledged"

    @property
    def device_log(self) -> Path:
        """File of the MQTT and CoAP devices' log."""
        return self.folder / "devices"

    @property
    def on_air(self) -> Path:
        """File of the values that Bluetooth devices advertised."""
        return self.folder / "on-air"

    @property
    def ble_log(self) -> Path:
        """File of the Bluetooth devices' log."""
        return self.folder / "devices-ble"

    @property
    def gateways(self) -> list[str]:
        """Names of the gateways as parts."""
        return [f"gateway-{number}" for number in range(1, len(self.ports.mqtt) + 1)]

    @property
    def bridges(self) -> list[str]:
        """Names of the bridges as parts."""
        return [f"bridge-{number}" for number in range(1, len(self.ports.amqp) + 1)]

    def cloud_of(self, bridge: str) -> Path:
        """Return the settings file of a bridge."""
        return self.cloud if bridge == self.bridges[0] else self.folder / f"cloud-{bridge.rpartition('-')[2]}.toml"

    def edge(self, gateway: str) -> Path:
        """Return the settings file of a gateway. Its folder has the gateway's certificate and its outbox too."""
        return self.folder / gateway / "edge.toml"

    def outbox(self, gateway: str) -> Path:
        """Return the folder of a gateway's outbox."""
        return self.folder / gateway / "data"


def take_folder(
    ports: Ports,
    devices: Sequence[Device],
    *,
    ble: Sequence[BleDevice] = (),
    keep: bool = False,
    secure: bool = True,
    stolen: str = "",
    name: str = "demo",
    retry_s: tuple[float, float] | None = None,
    certificate_days: float = DAYS,
) -> Workspace:
    """Lock the folder `name` for this process, empty it (unless `keep`), write the settings. Raises `Misconfigured`.

    `devices`: those that serve get the ports for that, in their order. `stolen`: see `Workspace`. `retry_s`: a gateway's
    first and longest pause before it tries its bridges again, if not the usual ones; the longest before it tries a Bluetooth
    device again as well. `certificate_days`: how long the gateways' certificates are valid.
    """
    folder = ROOT / ".fogline" / name
    folder.parent.mkdir(exist_ok=True)
    lock = os.open(folder.parent / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)  # open for as long as the process lives
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Misconfigured(f"another {name} is running in this checkout; end it first") from None
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    workspace = Workspace(folder, ports, tuple(ble), secure, stolen)
    workspace.logs.mkdir(parents=True, exist_ok=True)
    if secure:
        make_certificates(folder, TENANT, workspace.bridges)
    for index, bridge in enumerate(workspace.bridges):
        settings = _cloud(bridge, ports, index) + (bridge_tables(bridge, certificate_days) if secure else "")
        workspace.cloud_of(bridge).write_text(settings, "utf-8")
    serving = list(zip((each for each in devices if each.serves), ports.serving, strict=True))
    for index, gateway in enumerate(workspace.gateways):
        own = {device.name: port for device, port in serving if device.gateway == index}
        bluetooth = ble_settings(ble, index, retry_s[1] if retry_s else BLE_RETRY_S) if ble else ""
        uplink = _uplink(ports, retry_s) + (uplink_tables() if secure else "")
        workspace.edge(gateway).parent.mkdir(exist_ok=True)
        workspace.edge(gateway).write_text(_edge(gateway, ports, index, own, uplink) + bluetooth, "utf-8")
        if ble:
            workspace.edge(gateway).with_name("valve.toml").write_text(VALVE_PROFILE, "utf-8")
    return workspace


def _cloud(bridge: str, ports: Ports, index: int) -> str:
    metrics = f'metrics = "127.0.0.1:{ports.metrics}"\n' if ports.metrics and not index else ""
    return f"""\
tenant = "{TENANT}"
shards = {SHARDS}

[kafka]
"bootstrap.servers" = "127.0.0.1:{ports.kafka}"

[flow]
tables = "tables"
checkpoint = "checkpoint"
master = "local[2]"

[api]
listen = "127.0.0.1:{ports.http}"

[bridge]
name = "{bridge}"
listen = "127.0.0.1:{ports.amqp[index]}"
advertised = "127.0.0.1:{(ports.amqp_lines or ports.amqp)[index]}"
{metrics}"""


def _uplink(ports: Ports, retry_s: tuple[float, float] | None) -> str:
    bridges = [f"127.0.0.1:{port}" for port in ports.amqp_lines or ports.amqp]
    retry = "retry_s = {}\nretry_cap_s = {}\n".format(*retry_s) if retry_s is not None else ""
    return f"[uplink]\nbridge = {json.dumps(bridges)}\nstatement_s = 5.0\n{retry}"


def _edge(gateway: str, ports: Ports, index: int, serving: Mapping[str, int], uplink: str) -> str:
    settings = f"""\
tenant = "{TENANT}"
gateway = "{gateway}"
data = "data"

{uplink}
[mqtt]
port = {ports.mqtt[index]}

[[mqtt.topics]]
topic = "plant/{{device}}/#"
content_type = "application/json"

[coap]
port = {ports.coap[index]}
"""
    if ports.devices_http and not index:
        settings += f"\n[http]\nport = {ports.devices_http}\n"
    for device, port in serving.items():
        settings += f"""
[[coap.devices]]
device = "{device}"
uri = "coap://127.0.0.1:{port}/do"
"""
    return settings


def choose_ports(
    *,
    kafka: int,
    amqp: int,
    mqtt: int,
    coap: int,
    gateways: int,
    serving: int,
    http: int | None = None,
    devices_http: int | None = None,
    bridges: int = 1,
) -> Ports:
    """The ports asked for, each 0 for any free one; further parts take the ports after `amqp`, `mqtt` and `coap`.

    `http` None: there is no API. `devices_http` None: the first gateway has no HTTP.

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
        amqp=tuple(choose("AMQP", amqp and amqp + more) for more in range(bridges)),
        mqtt=tuple(choose("MQTT", mqtt and mqtt + more) for more in range(gateways)),
        coap=tuple(choose("CoAP", coap and coap + more) for more in range(gateways)),
        serving=tuple(choose("CoAP", 0) for _ in range(serving)),
        http=0 if http is None else choose("HTTP", http),
        metrics=0 if http is None else choose("metrics", 0),
        devices_http=0 if devices_http is None else choose("devices-HTTP", devices_http),
    )


def is_free(port: int) -> bool:
    """Return True if the port is free now, for TCP and for UDP."""
    with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port(taken: list[int]) -> int:
    """Choose a port below the range of outgoing connections: a restarted part must get its port again."""
    while True:
        port = random.randrange(20_000, 32_000)
        if port not in taken and is_free(port):
            return port
