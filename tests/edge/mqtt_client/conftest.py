"""A real Mosquitto on loopback, and clients of it with a back-off that tests can wait for."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fogline.amqp.backoff import Backoff
from fogline_edge.adapters.mqtt_client.client import MqttClient
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.broker_settings import MqttClientSettings, TopicSettings
from fogline_lab.commands import MemoryCommands
from fogline_lab.mosquitto_process import LIMIT_S, Mosquitto, installed_mosquitto
from fogline_lab.port import MemoryPort
from fogline_lab.waiting import eventually

PLANT = TopicSettings(topic="plant/{device}/#")


@pytest.fixture
def mosquitto(folder: Path) -> Iterator[Any]:
    """Starts brokers with further lines of configuration, and ends them after the test."""
    if installed_mosquitto() is None:
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
        port: Port | MemoryPort,
        broker: Mosquitto | int,
        *,
        wait: bool = True,
        command_port: CommandPort | MemoryCommands | None = None,
        **settings: Any,
    ) -> AsyncIterator[ObservedClient]:
        where = broker if isinstance(broker, int) else broker.port
        given = {"name": "site", "profile": "plain", "broker": f"127.0.0.1:{where}", **settings}
        if given["profile"] == "plain":
            given.setdefault("topics", [PLANT])
        client = ObservedClient(port, MqttClientSettings(**given), Backoff(base_s=0.02, cap_s=0.1), command_port)
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
