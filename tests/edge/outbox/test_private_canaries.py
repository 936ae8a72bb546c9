"""Private fields of events are nowhere on the gateway: not in the outbox's file, its log, status, metrics or archive."""

import asyncio
import contextlib
import json
import re
import tarfile
import urllib.request

import pytest
import zstandard

from fogline_edge.adapters.mqtt.protocol.packets import Ack, Connack, Connect, Publish, Will
from fogline_edge.adapters.mqtt.protocol.primitives import PacketType
from fogline_edge.adapters.mqtt.protocol.properties import Properties
from fogline_edge.cli import main
from fogline_edge.outbox.rows import stored_body
from fogline_lab.amqp import within
from fogline_lab.bridge.accepting_bridge import AcceptingBridge
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line
from fogline_lab.device.mqtt_wire import MqttWire
from fogline_lab.supervisor import ChildProcess, find_script, start_child, stop_children

_BODIES = zstandard.ZstdDecompressor(dict_data=stored_body._WITH)
CANARY = "canary-4711-ada-lovelace"
KEY = "canary-key-0815-0815-0815-0815"
SETTINGS = """
tenant = "acme"
gateway = "gw-1"
data = "data"
metrics = "127.0.0.1:0"
[uplink]
bridge = "127.0.0.1:{bridge}"
[mqtt]
port = 0
users = "users"
[mqtt.subscribers]
viewer = ["#"]
[[rules.private]]
name = "people"
drop = ["/name"]
hash = ["/badge"]
key_file = "private.key"
drop_properties = ["user"]
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "private.key").write_text(KEY)
    (tmp_path / "users").write_text(mosquitto_line("d1", b"d1") + "\n" + mosquitto_line("viewer", b"viewer") + "\n")
    for name in ("private.key", "users"):
        (tmp_path / name).chmod(0o600)
    return tmp_path / "edge.toml"


async def connected(port: int, user: str, **more) -> MqttWire:
    wire = MqttWire(*await asyncio.open_connection("127.0.0.1", port), 5)
    await wire.send(Connect(version=5, client_id=user, username=user, password=user.encode(), **more))
    assert isinstance(await wire.receive(), Connack)
    return wire


async def publish(wire: MqttWire, number: int, topic: str, payload: bytes, **more) -> None:
    await wire.publish(topic, payload, number, **more)
    assert isinstance(await wire.receive(), Ack)


async def send_everything(port: int) -> None:
    """Send the canary in every place where a payload can be, and in what no one can decode."""
    secret = json.dumps({"name": CANARY, "badge": CANARY, "n": 1}).encode()
    device = await connected(port, "d1", will=Will("event", secret, qos=1))
    user = Properties(user=(("user", CANARY), ("unit", "C")))
    await publish(device, 1, "telemetry", secret, properties=user)
    await publish(device, 2, "event", secret)
    await publish(device, 3, "telemetry", secret)
    await publish(device, 3, "telemetry", secret, dup=True)
    await publish(device, 4, "telemetry", f"name={CANARY}".encode())
    await publish(device, 5, "no/such/topic", secret)
    await publish(device, 6, "telemetry", b'{"name": "%s", "name": 1}' % CANARY.encode())
    device.cut()


async def collected(wire: MqttWire, count: int) -> list[Publish]:
    found = []
    while len(found) < count:
        packet = await wire.receive()
        assert isinstance(packet, Publish)
        found.append(packet)
        await wire.send(Ack(kind=PacketType.PUBACK, packet_id=packet.packet_id))
    return found


def legible(raw: bytes) -> bytes:
    """The bytes of a file of the outbox, and every body that is compressed in them: in rows, in free pages, in the log."""
    frames = [match.start() for match in re.finditer(re.escape(b"\x01\x28\xb5\x2f\xfd"), raw)]
    bodies = []
    for start in frames:
        with contextlib.suppress(zstandard.ZstdError):  # cut off by the end of a page
            bodies.append(_BODIES.decompressobj().decompress(raw[start + 1 :]))
    return raw + b"".join(bodies)


def read_metrics(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return answer.read()


async def test_canaries_of_private_fields_are_in_no_file_log_metric_archive_or_message(config, capsys):
    folder = config.parent
    bridge = AcceptingBridge()
    config.write_text(SETTINGS.format(bridge=await bridge.serve()))
    command = [find_script("fogline-edge"), "run", "--insecure-dev", "--config", config]
    process = ChildProcess("gateway", command, folder / "edge.log")
    ready = await start_child(process, 60.0)
    try:
        port = int(ready["mqtt"].rpartition(":")[2])
        viewer = await connected(port, "viewer")
        await viewer.subscribe("#")
        await send_everything(port)
        local = await collected(viewer, 6)  # five events of the device, and its will
        await bridge.until(lambda: len(bridge.came) >= 7, "the events do not come")
        places = {
            "metrics": await asyncio.to_thread(read_metrics, ready["metrics"]),
            "local": b"".join(each.encode(5) for each in local),
            "files of the running gateway": b"".join(
                legible(each.read_bytes()) for each in (folder / "data").glob("outbox.db*")
            ),
            "wire": b"".join(event.data + (event.properties or "").encode() for _, event in bridge.came),
        }
    finally:
        await stop_children(process)
        await within(asyncio.to_thread(process.wait, 60.0), "the gateway does not end")
        bridge.close()
    assert main(["status", "--config", str(config), "--json"]) == 0
    assert main(["doctor", "--config", str(config), "--json"]) in (0, 1)
    assert main(["diag", "--config", str(config), "--out", str(folder)]) == 0
    places["commands"] = capsys.readouterr().out.encode()
    for archive in folder.glob("fogline-diag-*"):
        with tarfile.open(archive) as members:
            places["diag"] = b"".join(members.extractfile(each).read() for each in members if each.isfile())
    files = [each for each in folder.rglob("*") if each.is_file() and each.name not in ("private.key", "users", "edge.toml")]
    places |= {
        str(each.relative_to(folder)): legible(each.read_bytes()) for each in files if not each.name.startswith("fogline-diag")
    }
    assert {"data/outbox.db", "edge.log", "diag"} <= places.keys()
    found = {name for name, content in places.items() if CANARY.encode() in content or KEY.encode() in content}
    assert found == set()
    assert b'"badge":"' in places["files of the running gateway"], "the search reads what is compressed"
    assert b'"badge":"' in places["local"]
    assert b"canary" not in places["wire"]
    hashes = {json.loads(event.data)["badge"] for _, event in bridge.came if event.data.startswith(b'{"badge"')}
    assert len(hashes) == 1
