"""The client: connects, connects again, and owns what outlives a connection."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from enum import StrEnum

from paho.mqtt.client import MQTTMessage

from fogline.amqp.reconnect import Backoff
from fogline.errors import Misconfigured, Unreachable
from fogline_edge.adapters.mqtt_client.access import check_client, load_access
from fogline_edge.adapters.mqtt_client.counters import Counters
from fogline_edge.adapters.mqtt_client.dial import dial
from fogline_edge.adapters.mqtt_client.inflow import Inflow
from fogline_edge.adapters.mqtt_client.intake import Intake
from fogline_edge.adapters.mqtt_client.link import Link, Terms
from fogline_edge.adapters.mqtt_client.session import Session
from fogline_edge.adapters.port import Port
from fogline_edge.profiles.plain import Plain
from fogline_edge.profiles.profile import ADAPTER, Profile
from fogline_edge.profiles.tasmota import Tasmota
from fogline_edge.profiles.zigbee2mqtt import Zigbee2Mqtt
from fogline_edge.settings import MqttClientSettings

_log = logging.getLogger(__name__)

_STABLE_S = 10.0
"""A connection that lasted so long ends a row of failures."""
_LEAVE_S = 2.0
_FAILURE = 0x80


class State(StrEnum):
    """What a client is doing.

    `IDLE`: not started, or closed. `CONNECTING`: until the broker has answered the subscription. `CONNECTED`. `PAUSED`: the
    port has no room, so nothing is read. `WAITING`: for the next attempt.
    """

    IDLE = "idle"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    PAUSED = "paused"
    WAITING = "waiting"


class MqttClient:
    """Puts what a broker has for this gateway into `port`, and acknowledges to the broker what `port` has committed.

    `counters` and `problem` (why it is not connected, or what the broker does not allow, in one line) may be read at any
    time. `backoff` says when to try again. Raises `Misconfigured` for settings that cannot work.
    """

    def __init__(self, port: Port, settings: MqttClientSettings, backoff: Backoff | None = None) -> None:
        check_client(settings)
        self.counters = Counters()
        self.problem: str | None = None
        self.client_id = settings.client_id or f"fogline-{port.tenant}-{port.gateway}-{settings.name}"
        self._port = port
        self._settings = settings
        self._backoff = backoff or Backoff()
        self._session_key = f"{ADAPTER}/{settings.name}/session"
        names_key = f"{ADAPTER}/{settings.name}/name/"
        names = {key.removeprefix(names_key): value.decode() for key, value in port.kept(names_key).items()}
        self._profile = make_profile(settings, names)
        intake = Intake(self._profile, port.gateway, sender=self.client_id, max_payload_bytes=settings.max_payload_bytes)
        self._inflow = Inflow(port, intake, self.counters, names_key)
        self._state = State.IDLE
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect as soon as possible, and again and again. Raises `Misconfigured` for a file that cannot be read."""
        await asyncio.to_thread(load_access, self._settings)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{ADAPTER} {self._settings.name}")

    async def close(self) -> None:
        """Leave the broker, which keeps the session, and with it what was not acknowledged.

        Nothing is put any more. Safe to call twice, and without `start`.
        """
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            self._state = State.IDLE
        self._inflow.close()
        if task is not None and not task.cancelled():
            task.result()

    @property
    def state(self) -> State:
        """What it is doing now."""
        paused = self._state is not State.IDLE and not self._inflow.room.is_set()
        return State.PAUSED if paused else self._state

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._inflow.room.wait()
            self._state = State.CONNECTING
            began = loop.time()
            try:
                await self._connection()
            except Unreachable as error:
                self._failed(str(error))
            if loop.time() - began >= _STABLE_S:
                self._backoff.stable()
            self._state = State.WAITING
            await asyncio.sleep(self._backoff.next_s())

    async def _connection(self) -> None:
        """One connection, until it ends: always with `Unreachable`, or cancelled."""
        settings = self._settings
        try:
            access = await asyncio.to_thread(load_access, settings)
        except Misconfigured as error:
            raise Unreachable(str(error)) from None
        stream = await dial(access.host, access.port, access.tls, settings.connect_timeout_s)
        terms = Terms(self.client_id, settings.keep_alive_s, settings.session_expiry_s, settings.receive_maximum)
        link = Link(stream, access, terms, self)
        self._inflow.link = link
        try:
            limit_s = settings.connect_timeout_s
            done, _ = await asyncio.wait((link.opened, link.ended), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise Unreachable(f"{settings.broker} does not answer CONNECT within {limit_s:g} s")
            raise Unreachable(f"{settings.broker}: {await asyncio.shield(link.ended)}")
        except asyncio.CancelledError:
            await link.leave(_LEAVE_S)
            raise
        finally:
            link.cut()
            self._inflow.link, self.counters.connected = None, 0

    def _failed(self, why: str) -> None:
        """Say it once, however often it happens in a row."""
        self.counters.failures += 1
        if self.problem != why:
            _log.warning("MQTT client %s: %s; trying again", self._settings.name, why)
        self.problem = why

    def opened(self, link: Link, *, session_present: bool) -> None:
        """See `Owner.opened`. Subscribe; but first, durably, give a session that is new a name of its own."""
        self.counters.connections += 1
        self.counters.connected = 1
        kept = self._port.kept(self._session_key).get(self._session_key)
        if session_present and kept is not None:
            if self._inflow.session is None:
                self._inflow.session = self._make_session(kept, fresh=False)
            link.subscribe(self._profile.filters)
            return
        if kept is not None:
            self.counters.sessions_lost += 1
            _log.warning(
                "MQTT client %s: %s has no session of %s any more: what it had queued is lost",
                self._settings.name, self._settings.broker, self.client_id,
            )  # fmt: skip
        nonce = secrets.token_hex(8).encode()
        self._inflow.session = self._make_session(nonce, fresh=not session_present)
        self._port.keep(self._session_key, nonce, lambda: link.subscribe(self._profile.filters))

    def subscribed(self, codes: Sequence[int]) -> None:
        """See `Owner.subscribed`."""
        self._state = State.CONNECTED
        topics = [each.topic for each in self._profile.filters]
        refused = [topic for topic, code in zip(topics, codes, strict=False) if code >= _FAILURE]
        at_qos_0 = [topic for topic, code in zip(topics, codes, strict=False) if code == 0]
        self.problem = None
        if refused:
            self.problem = f"{self._settings.broker} does not let {self.client_id} subscribe to {', '.join(refused)}"
        elif at_qos_0:
            self.problem = f"{self._settings.broker} gives {', '.join(at_qos_0)} at QoS 0 only: messages may be lost"
        if self.problem:
            _log.warning("MQTT client %s: %s", self._settings.name, self.problem)
        else:
            _log.info("MQTT client %s is subscribed at %s as %s", self._settings.name, self._settings.broker, self.client_id)

    def received(self, link: Link, message: MQTTMessage) -> None:
        """See `Owner.received`."""
        self._inflow.received(link, message)

    def _make_session(self, nonce: bytes, *, fresh: bool) -> Session:
        place = f"{ADAPTER}\0{self._settings.broker}\0{self.client_id}\0".encode() + nonce + b"\0"
        return Session(place, fresh=fresh)


def make_profile(settings: MqttClientSettings, names: dict[str, str]) -> Profile:
    """The profile that `settings` name. Raises `Misconfigured` for topics that are none."""
    match settings.profile:
        case "zigbee2mqtt":
            return Zigbee2Mqtt(settings.base_topic, names)
        case "tasmota":
            return Tasmota(settings.full_topic)
        case "plain":
            return Plain(settings.topics)
