"""Commands to devices behind the broker: published, and decided by the messages that follow."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass

from fogline.commands.command import Command, Reply
from fogline.errors import Poison
from fogline.process.crash_points import CrashPoint, crash_point
from fogline_edge.adapters.mqtt_client.connection import BrokerConnection
from fogline_edge.adapters.port import CommandPort, Port, answer_when_room, store_when_room
from fogline_edge.machine.boot import beacon
from fogline_edge.profiles.broker_commands.exchange import BrokerCommandProfile, CommandExchange, InDoubt, Verdict
from fogline_edge.profiles.profile import BrokerMessage

MAX_UNCONFIRMED = 16
"""Commands that the broker has not confirmed. paho would hold back more than 20, and send them after their deadline."""
_FAILURE, _QUOTA_EXCEEDED, _NOT_AUTHORIZED = 0x80, 0x97, 0x87  # 5: 3.4.2.1
_FORGET_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokerCommandCounters:
    """Counts of the commands since the client started. `fogline.process.monitoring.metrics` has their meanings."""

    published: int = 0
    confirmed: int = 0
    refused: int = 0
    answered: int = 0
    doubted: int = 0


@dataclass(slots=True)
class _Open:
    """A command that was published. `packet_id`: 0 once the broker has confirmed it. `doubted`: it was reported as lost."""

    command: Command
    exchange: CommandExchange
    connection: BrokerConnection
    packet_id: int
    timer: asyncio.TimerHandle
    doubted: bool = False


class BrokerCommands:
    """An `Executor` for the reachable devices of `profile`. `keys`: prefix of the notes about devices in the port.

    `timeout_s`: time for the messages that decide a command.
    """

    def __init__(
        self, port: Port, commands: CommandPort, profile: BrokerCommandProfile, *, keys: str, timeout_s: float
    ) -> None:
        self.counters = BrokerCommandCounters()
        self._port = port
        self._commands = commands
        self.profile = profile
        self._keys = keys
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._connection: BrokerConnection | None = None
        self._reachable: set[str] = set()
        self._open: dict[str, _Open] = {}
        self._answers: set[asyncio.Task[None]] = set()

    def subscribed(self, connection: BrokerConnection) -> None:
        """Note that messages arrive on this connection: from now on, an echo of a command cannot be missed."""
        self._connection = connection
        self._refresh(self.profile.directory)

    def disconnected(self) -> None:
        """Note that the connection has ended. Commands that the broker has confirmed go on waiting for their echo."""
        ended, self._connection = self._connection, None
        self._refresh(list(self._reachable))
        for each in list(self._open.values()):
            if each.connection is ended and each.packet_id:
                self._lose(each, "the connection to the broker ended before it confirmed the command")

    async def close(self) -> None:
        """End all commands; those under way are lost. Safe to call twice."""
        self.disconnected()
        for each in list(self._open.values()):
            self._lose(each, "the gateway stops")
            self._discard(each)
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    def received(self, message: BrokerMessage) -> bool:
        """Take each message of the broker, in order. Returns True if the devices have changed."""
        directory = self.profile.directory
        self.profile.note(message)
        for device, note in directory.take_unkept().items():
            self._port.keep(self._keys + device, note, lambda: None)
        if changed := directory.take_changed():
            self._refresh(changed)
        named = self.profile.answer(message)
        if named is not None and named.command_id not in self._open:  # a command of a former run, or it came twice
            self._store(store_when_room(self._commands, named.device, named.command_id, named.reply))
        for each in list(self._open.values()):
            verdict = each.exchange.received(message)
            if verdict is not None:
                self._decide(each, verdict)
        return bool(changed)

    def published(self, connection: BrokerConnection, packet_id: int, code: int) -> None:
        """Take the broker's PUBACK."""
        found = (each for each in self._open.values() if each.connection is connection and each.packet_id == packet_id)
        entry = next(found, None)
        if entry is None:
            return
        entry.packet_id = 0
        crash_point(CrashPoint.AFTER_PUBACK_BEFORE_ECHO)
        command_id = entry.command.id
        if code == _QUOTA_EXCEEDED:
            self._discard(entry)
            self._commands.not_sent(command_id)
        elif code >= _FAILURE:
            self.counters.refused += 1
            self._discard(entry)
            why = "not authorized" if code == _NOT_AUTHORIZED else f"reason code 0x{code:02X}"
            self._commands.refused(command_id, f"the broker refuses a message to {entry.exchange.publication.topic}: {why}")
        else:
            self.counters.confirmed += 1
            if not entry.command.reply:
                self._discard(entry)
                self._commands.taken(command_id)

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        connection = self._connection
        unconfirmed = sum(1 for each in self._open.values() if each.packet_id)
        if connection is None or unconfirmed >= MAX_UNCONFIRMED or not self.profile.directory.is_reachable(command.device):
            self._commands.not_sent(command.id)
            return
        try:
            exchange = self.profile.begin(command)
        except Poison as error:
            self.counters.refused += 1
            self._commands.refused(command.id, str(error))
            return
        left_ms = command.deadline.left_ms(beacon())
        publication = exchange.publication
        packet_id = connection.publish(publication.topic, publication.payload, left_ms // 1000) if left_ms >= 1000 else None
        if packet_id is None:
            self._commands.not_sent(command.id)
            return
        self.counters.published += 1
        for each in [each for each in self._open.values() if each.command.device == command.device]:
            self._discard(each)  # what the device shows from now on may come from this command
        timer = self._loop.call_later(self._timeout_s, self._on_timeout, command.id)
        self._open[command.id] = _Open(command, exchange, connection, packet_id, timer)
        crash_point(CrashPoint.AFTER_PUBLISH_BEFORE_PUBACK)

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`."""
        entry = self._open.get(command.id)
        if entry is None:
            return
        self._discard(entry)
        if entry.packet_id and entry.connection is self._connection:
            entry.connection.abort()

    def _on_timeout(self, command_id: str) -> None:
        entry = self._open.get(command_id)
        if entry is not None:
            self._decide(entry, entry.exchange.time_is_up())

    def _decide(self, entry: _Open, verdict: Verdict) -> None:
        if isinstance(verdict, InDoubt):
            self._lose(entry, verdict.why)
        else:
            self._answer(entry, verdict)

    def _answer(self, entry: _Open, reply: Reply) -> None:
        self.counters.answered += 1
        self._discard(entry)
        self._store(answer_when_room(self._commands, entry.command, reply))

    def _store(self, storing: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(storing, name="answer of a device behind a broker")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _lose(self, entry: _Open, why: str) -> None:
        """Report a command as in doubt, once. A late echo may still decide one that waits for its reply."""
        if entry.doubted:
            return
        entry.doubted = True
        self.counters.doubted += 1
        command = entry.command
        _log.info("command %s to %s is in doubt: %s", command.id, command.device, why, extra={"device": command.device})
        entry.timer.cancel()
        if command.idempotent or not command.reply:
            self._discard(entry)
        else:
            left_s = max(0, command.deadline.left_ms(beacon())) / 1000
            entry.timer = self._loop.call_later(left_s + _FORGET_S, self._discard, entry)
        self._commands.lost(command.id)

    def _discard(self, entry: _Open) -> None:
        entry.timer.cancel()
        if self._open.get(entry.command.id) is entry:
            del self._open[entry.command.id]

    def _refresh(self, devices: Iterable[str]) -> None:
        """Report which of these devices are reachable now."""
        for device in devices:
            reachable = self._connection is not None and self.profile.directory.is_reachable(device)
            if reachable and device not in self._reachable:
                self._reachable.add(device)
                self._commands.reachable(device, self)
            elif not reachable and device in self._reachable:
                self._reachable.discard(device)
                self._commands.unreachable(device, self)
