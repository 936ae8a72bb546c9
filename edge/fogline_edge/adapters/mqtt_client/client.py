"""The broker client: connects, reconnects, and owns the state that outlives a connection."""

import asyncio
import logging
import secrets
import time
from collections.abc import Sequence
from functools import partial

import msgspec
from paho.mqtt.client import MQTTMessage

from fogline.amqp.backoff import Backoff
from fogline.errors import Misconfigured, Unreachable
from fogline.events.event import rfc3339
from fogline.process.cancellation import end_tasks
from fogline_edge.adapters.mqtt_client.access import check_client, load_access
from fogline_edge.adapters.mqtt_client.commands import BrokerCommandCounters, BrokerCommands
from fogline_edge.adapters.mqtt_client.connection import BrokerConnection
from fogline_edge.adapters.mqtt_client.inflow import Inflow, MqttClientCounters
from fogline_edge.adapters.mqtt_client.intake import BrokerIntake
from fogline_edge.adapters.mqtt_client.profiles import client_id_of, keys_of, make_profiles
from fogline_edge.adapters.mqtt_client.session import BrokerSession
from fogline_edge.adapters.mqtt_client.socket_stream import dial
from fogline_edge.adapters.mqtt_client.state import NOTES, STATE, BrokerState
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.broker_settings import MqttClientSettings
from fogline_edge.profiles.profile import ADAPTER, Filter

_log = logging.getLogger(__name__)

_STABLE_S = 10.0  # a connection of this duration resets the backoff
_LEAVE_S = 2.0
_FAILURE = 0x80


class MqttClient:
    """Puts a broker's messages into `port`, and acknowledges each to the broker after its commit.

    `counters` and `problem` may be read at any time; `problem` is one line: the reason why there is no connection, or the
    subscription that the broker refuses. `commands`: for commands to the devices behind the broker, if the settings allow
    them. Raises `Misconfigured` for invalid settings.
    """

    def __init__(
        self, port: Port, settings: MqttClientSettings, backoff: Backoff | None = None, commands: CommandPort | None = None
    ) -> None:
        check_client(settings)
        self.counters = MqttClientCounters()
        self.problem: str | None = None
        self.client_id = client_id_of(settings, port.tenant, port.gateway)
        self._port = port
        self._settings = settings
        self._backoff = backoff or Backoff()
        self._session_key = f"{ADAPTER}/{settings.name}/session"
        profile, sends = make_profiles(settings, port)
        intake = BrokerIntake(profile, port.gateway, sender=self.client_id, max_payload_bytes=settings.max_payload_bytes)
        self._inflow = Inflow(port, intake, self.counters, partial(keys_of, settings))
        self._filters: tuple[Filter, ...] = profile.filters
        self._commands: BrokerCommands | None = None
        if commands is not None and sends is not None:
            self._filters = (*self._filters, *sends.filters)
            keys, limit_s = keys_of(settings, NOTES), settings.command_timeout_s
            self._commands = BrokerCommands(port, commands, sends, keys=keys, timeout_s=limit_s)
        self._shown: BrokerState | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def command_counters(self) -> BrokerCommandCounters | None:
        """Counts of the commands; `None` if the client sends none."""
        return self._commands.counters if self._commands is not None else None

    async def start(self) -> None:
        """Connect, and reconnect until `close`. Raises `Misconfigured` for an unreadable file."""
        await asyncio.to_thread(load_access, self._settings)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"{ADAPTER} {self._settings.name}")

    async def close(self) -> None:
        """Disconnect, and put nothing more. The broker keeps the session. Safe to call twice, and without `start`."""
        task, self._task = self._task, None
        if self._commands is not None:
            await self._commands.close()
        if task is not None:
            await end_tasks(task)
        self._inflow.parked.clear()
        if task is not None and not task.cancelled():
            task.result()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._inflow.room.wait()
            began = loop.time()
            try:
                await self._connection()
            except Unreachable as error:
                self._failed(str(error))
            if loop.time() - began >= _STABLE_S:
                self._backoff.stable()
            await asyncio.sleep(self._backoff.next_s())

    async def _connection(self) -> None:
        """Run one connection until it ends: always with `Unreachable`, or cancelled."""
        settings = self._settings
        try:
            access = await asyncio.to_thread(load_access, settings)
        except Misconfigured as error:
            raise Unreachable(str(error)) from None
        stream = await dial(access.host, access.port, access.tls, settings.connect_timeout_s)
        connection = BrokerConnection(stream, access, settings, self.client_id, self)
        self._inflow.connection = connection
        try:
            opened, limit_s = (connection.opened, connection.ended), settings.connect_timeout_s
            done, _ = await asyncio.wait(opened, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise Unreachable(f"{settings.broker} does not answer CONNECT within {limit_s:g} s")
            raise Unreachable(f"{settings.broker}: {await asyncio.shield(connection.ended)}")
        except asyncio.CancelledError:
            await connection.leave(_LEAVE_S)
            raise
        finally:
            connection.cut()
            self._inflow.connection, self.counters.connected = None, 0
            if self._commands is not None:
                self._commands.disconnected()

    def _failed(self, reason: str) -> None:
        self.counters.failures += 1
        if self.problem != reason:
            _log.warning("MQTT client %s: %s; trying again", self._settings.name, reason)
        self.problem = reason
        self._publish_state()

    def opened(self, connection: BrokerConnection, *, session_present: bool) -> None:
        """See `BrokerConnectionOwner.opened`. Subscribes, after a nonce for a new session is stored."""
        self.counters.connections += 1
        self.counters.connected = 1
        kept = self._port.kept(self._session_key).get(self._session_key)
        if session_present and kept is not None:
            if self._inflow.session is None:
                self._inflow.session = self._make_session(kept, fresh=False)
            connection.subscribe(self._filters)
            return
        if kept is not None:
            self.counters.sessions_lost += 1
            _log.warning(
                "MQTT client %s: %s has no session of %s any more: the messages queued in it are lost",
                self._settings.name, self._settings.broker, self.client_id,
            )  # fmt: skip
        nonce = secrets.token_hex(8).encode()
        self._inflow.session = self._make_session(nonce, fresh=not session_present)
        self._port.keep(self._session_key, nonce, lambda: connection.subscribe(self._filters))

    def subscribed(self, codes: Sequence[int]) -> None:
        """See `BrokerConnectionOwner.subscribed`."""
        topics = [each.topic for each in self._filters]
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
        if self._commands is not None and self._inflow.connection is not None:
            self._commands.subscribed(self._inflow.connection)
        self._publish_state()

    def _publish_state(self) -> None:
        """Keep the state for `fogline-edge status`, if it has changed."""
        since = self._shown.since if self._shown is not None else ""
        devices = len(self._commands.profile.directory) if self._commands is not None else None
        connected = bool(self.counters.connected)
        state = BrokerState(
            broker=self._settings.broker, since=since, connected=connected, problem=self.problem, devices=devices
        )
        if state == self._shown:
            return
        if self._shown is None or self._shown.connected is not connected:
            state = msgspec.structs.replace(state, since=rfc3339(time.time_ns()))
        self._shown = state
        self._port.keep(f"{ADAPTER}/{self._settings.name}/{STATE}", msgspec.json.encode(state), lambda: None)

    def received(self, connection: BrokerConnection, message: MQTTMessage) -> None:
        """See `BrokerConnectionOwner.received`."""
        received = self._inflow.received(connection, message)
        if self._commands is not None and self._commands.received(received):
            self._publish_state()

    def published(self, connection: BrokerConnection, packet_id: int, code: int) -> None:
        """See `BrokerConnectionOwner.published`."""
        if self._commands is not None:
            self._commands.published(connection, packet_id, code)

    def _make_session(self, nonce: bytes, *, fresh: bool) -> BrokerSession:
        slot = f"{ADAPTER}\0{self._settings.broker}\0{self.client_id}\0".encode() + nonce + b"\0"
        return BrokerSession(slot, fresh=fresh)
