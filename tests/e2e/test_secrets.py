"""Keys, passwords and tokens are in no log, no process list, no core file, no Kafka record, no table, and no other file."""

import contextlib
import io
import json
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from e2e.canaries import Canaries, ProcessWatch
from fogline.commands.signature import make_key
from fogline.gateway.enrolment import decode_token
from fogline_cloud.cli import main as cloud
from fogline_cloud.kafka.clients import KafkaClients
from fogline_edge import cli as edge
from fogline_lab.credentials.mosquitto_passwords import mosquitto_line
from fogline_lab.kafka_broker import free_port
from fogline_lab.supervisor import ChildProcess, find_script

LIMIT_S = 300.0
PASSWORDS = ("operator", "wrong operator", "device", "wrong device", "broker", "kafka")
HOLDERS = (
    "ca/ca.key", "bridge-1.key", "gw-1/gateway.pem", "signing.key", "cloud.toml", "wrong.toml", "password", "wrong-password",
    "gw-1/broker-password",
)  # fmt: skip
"""The files whose purpose is to hold a secret."""


@dataclass
class SecretLine:
    """A bridge and a gateway that are processes, and commands, each of which has secrets to keep. `printed`: their outputs."""

    folder: Path
    tenant: str
    bootstrap: str
    canaries: Canaries = field(default_factory=Canaries)
    printed: list[bytes] = field(default_factory=list)
    passwords: dict[str, str] = field(default_factory=dict)
    public_key: str = ""

    def __post_init__(self) -> None:
        self.port, self.metrics = free_port(), free_port()
        for name in PASSWORDS:
            self.passwords[name] = f"canary-{name.replace(' ', '-')}-{self.tenant}-do-not-show"
            self.canaries.plant(f"password: {name}", self.passwords[name])
        private, self.public_key = make_key()
        self.canaries.plant("signing key", private)
        self.private("signing.key", private)
        self.private("password", self.passwords["operator"])
        self.private("wrong-password", self.passwords["wrong operator"])
        self.settings("cloud.toml", "password")
        self.settings("wrong.toml", "wrong-password")

    def private(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(f"{text}\n")
        path.chmod(0o600)

    def settings(self, name: str, password_file: str) -> None:
        (self.folder / name).write_text(f"""\
tenant = "{self.tenant}"
shards = 1
[kafka]
"bootstrap.servers" = "{self.bootstrap}"
# for the day when Kafka asks for it: {self.passwords["kafka"]}
[flow]
trigger_ms = 100
[commands]
signing_key = "signing.key"
[bridge]
listen = "127.0.0.1:{self.port}"
metrics = "127.0.0.1:{self.metrics}"
crl = "ca/crl.pem"
users = "users"
enrolment = true
[bridge.tls]
ca = "ca.pem"
certificate = "bridge-1.pem"
key = "bridge-1.key"
[operator]
bridge = "127.0.0.1:{self.port}"
user = "alice"
password_file = "{password_file}"
[operator.tls]
ca = "ca.pem"
""")

    def run(self, *command: str | Path, typed: str = "", secret: bool = False, status: int | None = 0) -> str:
        """Run a command as a process. `secret`: it prints a secret, which is its purpose."""
        script = [find_script(str(command[0])), *map(str, command[1:])]
        done = subprocess.run(script, input=typed.encode(), capture_output=True, cwd=self.folder, timeout=LIMIT_S, check=False)
        self.printed += [done.stderr, *([] if secret else [done.stdout])]
        assert status in (None, done.returncode), (command, done)
        return done.stdout.decode()

    def call(self, main, *arguments: str | Path, status: int | None = 0) -> str:
        """Run a command within this process, which is quicker."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = main([str(each) for each in arguments])
        self.printed += [out.getvalue().encode(), err.getvalue().encode()]
        assert status in (None, ended), (arguments, ended, err.getvalue())
        return out.getvalue()


@pytest.fixture
def secret_line(folder, tenant, kafka) -> SecretLine:
    return SecretLine(folder, tenant, kafka.bootstrap)


@contextlib.contextmanager
def running(line: SecretLine, name: str, *command: str) -> Iterator[ChildProcess]:
    child = ChildProcess(name, [find_script(command[0]), *command[1:]], line.folder / f"{name}.log", folder=line.folder)
    child.start()
    try:
        child.next_line()
        yield child
    finally:
        child.stop()


def issue(line: SecretLine) -> None:
    """Make the authority, the bridge's certificate and the operator's password."""
    line.call(cloud.main, "ca", "init", "--json")
    line.call(cloud.main, "ca", "issue", "bridge", "bridge-1", "--host", "127.0.0.1", "--json")
    for name, file in (("authority's key", "ca/ca.key"), ("bridge's key", "bridge-1.key")):
        line.canaries.plant_key(name, (line.folder / file).read_bytes())
    line.run("fogline", "user", "set", "alice", "--stdin", "--json", typed=line.passwords["operator"])
    line.call(cloud.main, "topics", "create", "--json")


def enrol(line: SecretLine) -> None:
    """Let a gateway enrol; its token is typed, as a user should do it."""
    token = json.loads(line.run("fogline", "gateway", "add", "gw-1", "--json", secret=True))["token"]
    line.canaries.plant("token", token)
    line.canaries.plant("secret of the token", decode_token(token).secret)
    enroll = ("fogline-edge", "enroll", "-", "--bridge", f"127.0.0.1:{line.port}", "--out", "gw-1")
    line.run(*enroll, typed=f"{token[:-9]}\n", status=2)
    line.run(*enroll, typed=f"{token}\n")
    (line.folder / "gw-1" / "gateway.pem").rename(line.folder / "gateway.pem")
    line.run(*enroll, typed=f"{token}\n", status=2)  # it was used already
    (line.folder / "gateway.pem").rename(line.folder / "gw-1" / "gateway.pem")
    gateway = line.folder / "gw-1"
    line.canaries.plant_key("gateway's first key", (gateway / "gateway.pem").read_bytes())
    (gateway / "users").write_text(mosquitto_line("lamp-1", line.passwords["device"].encode()) + "\n")
    line.private("gw-1/broker-password", line.passwords["broker"])
    written = (gateway / "edge.toml").read_text()
    (gateway / "edge.toml").write_text(f"""\
metrics = "127.0.0.1:0"
{written}
port = 0
users = "users"
[commands]
keys = {{ key-1 = "{line.public_key}" }}
[[mqtt_clients]]
name = "site"
profile = "zigbee2mqtt"
broker = "127.0.0.1:{free_port()}"
username = "fogline"
password_file = "broker-password"
""")


@contextlib.contextmanager
def lamp(line: SecretLine, address: str, password: str) -> Iterator[Client]:
    """A device, which answers commands if it is let in."""
    client = Client(CallbackAPIVersion.VERSION2, client_id="lamp-1")
    client.username_pw_set("lamp-1", line.passwords[password])
    answered = threading.Event()

    def on_connect(client, _, __, code, ___):
        if not code.is_failure:
            client.subscribe("command///req/#", 1)
        answered.set()

    client.on_connect = on_connect
    client.on_message = lambda _, __, message: client.publish(f"command///res/{message.topic.split('/')[4]}/200", b"{}", 1)
    host, _, port = address.rpartition(":")
    client.connect(host, int(port))
    client.loop_start()
    assert answered.wait(LIMIT_S), "the gateway does not answer"
    yield client
    client.disconnect()
    client.loop_stop()


def use(line: SecretLine, gateway: ChildProcess) -> None:
    """Send events and a command, with right and with wrong passwords."""
    address = gateway.ready_line["mqtt"]
    with lamp(line, address, "wrong device") as client:
        assert not client.is_connected(), "a wrong password is accepted"
    with lamp(line, address, "device") as client:
        client.publish("telemetry", b'{"temperature": 21.5}', 1).wait_for_publish(LIMIT_S)
        send = ("command", "send", "lamp-1", "switch", "--json", '{"on": true}', "--output", "json", "--config")
        until(lambda: '"SUCCEEDED"' in line.call(cloud.main, *send, "cloud.toml", status=None), "the command does not succeed")
        line.call(cloud.main, *send, "wrong.toml", status=2)
    line.run("fogline-edge", "renew", "--config", "gw-1/edge.toml")
    line.canaries.plant_key("gateway's second key", (line.folder / "gw-1" / "gateway.pem").read_bytes())


def until(condition, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # other processes give no event


def mistakes(line: SecretLine) -> None:
    """Commands with settings and files that are wrong just where a secret is."""
    kafka, broken = line.passwords["kafka"], line.folder / "broken"
    good = (line.folder / "cloud.toml").read_text().replace("[kafka]\n", f'[kafka]\n"sasl.password" = "{kafka}"\n')
    for wrong in (
        good.replace(f'"sasl.password" = "{kafka}"', f'"sasl.password" = ["{kafka}"]'),
        good.replace(f'"sasl.password" = "{kafka}"', f'"sasl.password" = "{kafka}'),
        good.replace('"sasl.password"', '"security.protocol" = "SSL"\n"ssl.key.pem"'),
        good.replace('"sasl.password"', '"sasl.pasword"'),
    ):
        place = broken / str(len(list(broken.glob("*"))) if broken.exists() else 0)
        place.mkdir(parents=True)
        shutil.copy(line.folder / "signing.key", place)
        (place / "cloud.toml").write_text(wrong)
        (place / "cloud.toml").chmod(0o600)
        line.call(cloud.main, "bridge", "check", "--config", place / "cloud.toml", status=2)
    for name in ("signing.key", "users", "bridge-1.key"):
        place = broken / name
        place.mkdir()
        for each in ("cloud.toml", "signing.key", "users", "bridge-1.key", "bridge-1.pem", "ca.pem"):
            shutil.copy(line.folder / each, place)
        shutil.copytree(line.folder / "ca", place / "ca")
        (place / name).write_text(f"{line.passwords['operator']}\n{(place / name).read_text()[:-30]}")
        line.run("fogline", "bridge", "run", "--config", place / "cloud.toml", status=2)
    shutil.rmtree(broken)
    edge_toml = line.folder / "gw-1" / "edge.toml"
    (line.folder / "gw-1" / "wrong.toml").write_text(f'password = "{line.passwords["broker"]}"\n{edge_toml.read_text()}')
    line.call(edge.main, "check", "--config", "gw-1/wrong.toml", status=2)
    (line.folder / "gw-1" / "wrong.toml").unlink()


def look(line: SecretLine, *processes: ChildProcess) -> None:
    """Ask everything that a process tells of itself, and check that it would leave no core file."""
    for process in processes:
        process.send(signal.SIGUSR1)
        line.printed.append(json.dumps(process.next_line(LIMIT_S)).encode())
        limit = re.search(r"^Max core file size\s+(\d+)", Path(f"/proc/{process.pid}/limits").read_text(), re.MULTILINE)
        assert limit is not None
        assert int(limit[1]) <= 1, "the memory of a process may land in a core file"
    for address in (f"127.0.0.1:{line.metrics}", processes[-1].ready_line["metrics"]):
        for path in ("/metrics", "/healthz"):
            with urllib.request.urlopen(f"http://{address}{path}", timeout=LIMIT_S) as answer:
                line.printed.append(answer.read())
    for arguments in (["ca", "list"], ["ca", "show", "gw-1"], ["command", "list"], ["ledger", "verify"], ["bridge", "check"]):
        line.call(cloud.main, *arguments, "--json", status=None)
    for arguments in (["status", "--json"], ["outbox", "--json"], ["check"]):
        line.call(edge.main, *arguments, "--config", "gw-1/edge.toml")


def records(line: SecretLine) -> Iterator[bytes]:
    """Every record of the tenant's topics, committed or not: key, value and headers."""
    clients = KafkaClients({"bootstrap.servers": line.bootstrap})
    partitions = [(name, n) for name, count in clients.topics().items() if line.tenant in name for n in range(count)]
    left = {partition: end for partition, (low, end) in clients.bounds(partitions).items() if low < end}
    reader = clients.reader(committed=False)
    reader.assign([TopicPartition(*partition, 0) for partition in left])
    deadline = time.monotonic() + LIMIT_S
    while left:
        assert time.monotonic() < deadline, f"these partitions cannot be read: {left}"
        for message in reader.consume(1000, 0.1):
            if message.error() is None:
                headers = b"".join(value or b"" for _, value in message.headers() or ())
                yield (message.key() or b"") + b"\0" + (message.value() or b"") + b"\0" + headers
        for each in reader.position([TopicPartition(*partition) for partition in left]):
            if each.offset >= left[each.topic, each.partition]:
                del left[each.topic, each.partition]
    reader.close()


def drive(line: SecretLine) -> ProcessWatch:
    """Use everything that has a secret."""
    with ProcessWatch(line.canaries) as watch:
        issue(line)
        with running(line, "bridge", "fogline", "bridge", "run") as bridge:
            enrol(line)
            with running(line, "gateway", "fogline-edge", "run", "--config", "gw-1/edge.toml") as gateway:
                use(line, gateway)
                mistakes(line)
                look(line, bridge, gateway)
    return watch


def assert_kept(line: SecretLine, watch: ProcessWatch) -> None:
    canaries, holders = line.canaries, [line.folder / each for each in HOLDERS]
    assert {name for names in watch.shown.values() for name in names} == set(), f"`ps` shows secrets of {list(watch.shown)}"
    assert any(b"enroll" in each for each in watch.commands), "the watch is blind"
    assert [text for text in line.printed if canaries.found(text)] == []
    assert canaries.in_files(line.folder, holders) == {}
    landed = list(records(line))
    assert any(b"21.5" in each for each in landed)
    assert [each for each in landed if canaries.found(each)] == []
    held = {name for each in holders for name in canaries.found(each.read_bytes())}
    nowhere = {"token", "secret of the token", "password: device", "password: wrong device", "gateway's first key"}
    assert canaries.names() - held == nowhere, "the search does not find a secret in the file that holds it"


def test_no_secret_leaves_its_file(secret_line):
    assert_kept(secret_line, drive(secret_line))


@pytest.mark.slow
def test_no_secret_is_in_the_tables_or_in_the_log_of_their_flow(secret_line):
    watch = drive(secret_line)
    with ProcessWatch(secret_line.canaries) as flow:
        secret_line.run("fogline", "flow", "run", "--once", "--json")
    assert (secret_line.folder / "tables" / "readings").is_dir()
    watch.shown |= flow.shown
    assert_kept(secret_line, watch)
