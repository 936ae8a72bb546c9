"""Whatever is wrong: one line that says what and what to do, status 2, no traceback."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.settings import CloudSettings
from fogline_cloud.shard.topic_admin import create_topics
from fogline_lab.kafka_broker import free_port

BIN = Path(sys.executable).parent
LIMIT_S = 90
EVERY = [("bridge", "run"), ("topics", "check"), ("flow", "run"), ("ledger", "verify")]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    serves = command[:2] == ("fogline-edge", "run") or command[:3] == ("fogline", "bridge", "run")
    return subprocess.run(
        [str(BIN / command[0]), *command[1:], *(["--insecure-dev"] if serves else [])],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **environment},
    )


def fails_with(result, *words: str) -> None:
    """Status 2, and one line of the command's own on stderr that has all the words (logs beside it begin with a date)."""
    own = [line for line in result.stderr.splitlines() if not line[:4].isdigit()]
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr, result.stderr
    assert len(own) == 1, result.stderr
    for word in words:
        assert word in own[0]


def edge(folder: Path, extra: str = "", data: str = "data") -> str:
    path = folder / "edge.toml"
    path.write_text(f'tenant = "acme"\ngateway = "gw-1"\ndata = "{data}"\n{extra}')
    return str(path)


def cloud(folder: Path, bootstrap: str, extra: str = "", tenant: str = "acme") -> str:
    path = folder / "cloud.toml"
    path.write_text(
        f'tenant = "{tenant}"\n{extra}\n[kafka]\n"bootstrap.servers" = "{bootstrap}"\n[bridge]\nlisten = "127.0.0.1:0"\n'
    )
    return str(path)


@pytest.fixture
def nobody() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize("command", ["run", "check", "status", "outbox"])
def test_a_wrong_key_at_the_gateway(folder, command):
    fails_with(run("fogline-edge", command, "--config", edge(folder, "[mqtt]\nprot = 1")), "unknown key `prot`", "edge.toml")


@pytest.mark.parametrize(
    "command", [("bridge", "run"), ("topics", "check"), ("flow", "run"), ("ledger", "verify")], ids=" ".join
)
def test_a_wrong_key_in_the_cloud(folder, command, nobody):
    config = cloud(folder, nobody, "shrads = 8")
    fails_with(run("fogline", *command, "--config", config), "unknown key `shrads`", "cloud.toml")


def test_a_wrong_address(folder):
    fails_with(
        run("fogline-edge", "run", "--config", edge(folder, '[uplink]\nbridge = "nonsense"')), "uplink.bridge", "host:port"
    )


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize("table", ["mqtt", "coap"])
def test_a_listener_beyond_loopback(folder, table, command):
    config = edge(folder, f'[{table}]\nhost = "0.0.0.0"')
    fails_with(run("fogline-edge", command, "--config", config), f"{table}.host", "loopback")


@pytest.mark.parametrize("command", ["run", "check"])
def test_metrics_beyond_loopback_are_refused_by_the_gateway_and_its_check(folder, command):
    fails_with(
        run("fogline-edge", command, "--config", edge(folder, 'metrics = "0.0.0.0:9464"\n[mqtt]')),
        "metrics = '0.0.0.0'",
        "loopback",
    )


@pytest.mark.parametrize(
    "command", [("bridge", "run"), ("topics", "create"), ("flow", "run"), ("ledger", "verify")], ids=" ".join
)
def test_kafka_is_not_there(folder, command, nobody):
    fails_with(run("fogline", *command, "--config", cloud(folder, nobody)), f"Kafka does not answer at {nobody}", "start it")


def test_the_mqtt_port_is_taken(folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = edge(folder, f"[mqtt]\nport = {other.getsockname()[1]}")
        fails_with(run("fogline-edge", "run", "--config", config), str(other.getsockname()[1]), "port")


def test_the_bridges_port_is_taken(folder, kafka, tenant):
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=8)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        path = Path(cloud(folder, kafka.bootstrap, tenant=tenant))
        path.write_text(path.read_text().replace("127.0.0.1:0", f"127.0.0.1:{other.getsockname()[1]}"))
        fails_with(run("fogline", "bridge", "run", "--config", str(path)), "cannot listen", "bridge.listen")


@pytest.mark.parametrize("command", [("bridge", "run"), ("flow", "run"), ("ledger", "verify")], ids=" ".join)
def test_topics_are_missing(folder, command, kafka, tenant):
    config = cloud(folder, kafka.bootstrap, tenant=tenant)
    fails_with(run("fogline", *command, "--config", config), "topics are missing", "fogline topics create")


@pytest.mark.parametrize("command", [("bridge", "run"), ("topics", "create")], ids=" ".join)
def test_the_shard_count_was_changed(folder, command, kafka, tenant):
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=2)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    config = cloud(folder, kafka.bootstrap, "shards = 4", tenant)
    fails_with(run("fogline", *command, "--config", config), "shards = 4", "set shards = 2")


def test_a_data_folder_that_cannot_be_made(folder):
    (folder / "file").touch()
    fails_with(run("fogline-edge", "run", "--config", edge(folder, "[mqtt]", data="file/data")), "data folder", "choose one")


@pytest.fixture
def full_disk(folder):
    """A file system of 256 KiB that is full."""
    place = folder / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], check=True)
    try:
        with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"x" * 4096):
                pass
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small file system needs root")
def test_no_space(folder, full_disk):
    config = edge(folder, "[mqtt]", data=str(full_disk / "data"))
    fails_with(run("fogline-edge", "run", "--config", config), "space")


def test_no_java(folder, kafka, tenant):
    settings = CloudSettings(tenant=tenant, kafka={"bootstrap.servers": kafka.bootstrap}, shards=8)
    create_topics(KafkaClients(settings.kafka), settings, 1)
    config = cloud(folder, kafka.bootstrap, tenant=tenant)
    result = run("fogline", "flow", "run", "--config", config, PATH="/nowhere", JAVA_HOME="/nowhere")
    fails_with(result, "Java", "install")


@pytest.mark.parametrize("command", ["fogline", "fogline-edge"])
def test_help_has_an_example(command):
    result = run(command, "--help")
    assert result.returncode == 0
    assert "examples:" in result.stdout
