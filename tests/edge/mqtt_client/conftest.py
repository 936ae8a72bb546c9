"""A real Mosquitto on loopback, and clients of it with a back-off that tests can wait for."""

import asyncio
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fogline.amqp.backoff import Backoff
from fogline_edge.adapters.mqtt_client.client import MqttClient
from fogline_edge.adapters.port import Port
from fogline_edge.settings import MqttClientSettings, TopicSettings
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

LIMIT_S = 60.0
PLANT = TopicSettings(topic="plant/{device}/#")


def find_mosquitto() -> str | None:
    """The broker; Debian puts it where only root's PATH looks."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class Mosquitto:
    """One broker. `kill` and `start` again keep its data and its port; `lines` are added to its configuration."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._lines = [] if any("allow_anonymous" in each for each in lines) else ["allow_anonymous true"]
        self._lines += lines

    def start(self) -> "Mosquitto":
        program = find_mosquitto()
        assert program is not None
        configuration = self.folder / "mosquitto.conf"
        fixed = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {self.folder}/",
            "autosave_on_changes true",
            "autosave_interval 1",
            f"user {getpass.getuser()}",
        ]
        configuration.write_text("\n".join([*fixed, *self._lines, ""]))
        with (self.folder / "mosquitto.log").open("ab") as log:
            self.process = subprocess.Popen([program, "-c", configuration], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + LIMIT_S
        while True:
            assert self.process.poll() is None, (self.folder / "mosquitto.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < deadline, "the broker does not open its port"
                time.sleep(0.01)
            else:
                return self

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it as a power cut would, or in order."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(LIMIT_S)
            self.process = None

    async def publish(self, topic: str, *payloads: str, retain: bool = False, qos: int = 1, more: tuple[str, ...] = ()) -> None:
        """Publish each payload; returns when the broker has acknowledged all."""
        process = await asyncio.create_subprocess_exec(
            "mosquitto_pub", "-h", "127.0.0.1", "-p", str(self.port), "-V", "5", "-q", str(qos), "-t", topic, "-l",
            *(("-r",) if retain else ()), *more, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate("".join(f"{each}\n" for each in payloads).encode())
        assert process.returncode == 0, output


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def mosquitto(folder: Path) -> Iterator[Any]:
    """Starts brokers with further lines of configuration, and ends them after the test."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed: deploy/setup/setup.sh installs it")
    started: list[Mosquitto] = []

    def start(*lines: str) -> Mosquitto:
        place = folder / f"broker{len(started)}"
        place.mkdir()
        broker = Mosquitto(place, *lines)
        started.append(broker)
        return broker.start()

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def broker(mosquitto: Any) -> Mosquitto:
    """A broker that lets everybody in."""
    return mosquitto()


class ObservedClient(MqttClient):
    """A client that notes which of its connections had a SUBACK last."""

    subscribed_connection = 0

    def subscribed(self, codes: Sequence[int]) -> None:
        super().subscribed(codes)
        self.subscribed_connection = self.counters.connections

    @property
    def paused(self) -> bool:
        """The port has no room, so nothing is read."""
        return not self._inflow.room.is_set()

    @property
    def reads(self) -> bool:
        """The present connection is subscribed, and is read."""
        return bool(self.counters.connected) and self.subscribed_connection == self.counters.connections and not self.paused


@pytest.fixture
def connecting():
    """Opens a client of a broker for a port; unless `wait=False`, it is subscribed when it is given."""

    @asynccontextmanager
    async def connecting(
        port: Port | MemoryPort, broker: Mosquitto | int, *, wait: bool = True, **settings: Any
    ) -> AsyncIterator[ObservedClient]:
        where = broker if isinstance(broker, int) else broker.port
        given = {"name": "site", "profile": "plain", "broker": f"127.0.0.1:{where}", **settings}
        if given["profile"] == "plain":
            given.setdefault("topics", [PLANT])
        client = ObservedClient(port, MqttClientSettings(**given), Backoff(base_s=0.02, cap_s=0.1))
        await client.start()
        try:
            if wait:
                await eventually(lambda: client.reads, "the client is subscribed")
            yield client
        finally:
            async with asyncio.timeout(LIMIT_S):
                await client.close()

    return connecting


@pytest.fixture(name="eventually")
def eventually_():
    return eventually


def die(client: MqttClient) -> None:
    """End the client as a power cut would: no DISCONNECT, no acknowledgement, nothing more put."""
    client._inflow.connection.cut()
    client._task.cancel()


@pytest.fixture(name="die")
def die_():
    return die
