"""The MQTT listener: accepts sockets, knows who is connected, and owns what outlives a connection."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from fogline.command import Command
from fogline.errors import Misconfigured
from fogline.rates import DeviceRates
from fogline.settings import require_loopback
from fogline_edge.adapters.listening import cannot_listen
from fogline_edge.adapters.mqtt.connection import Connection
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.dispatch import Dispatch
from fogline_edge.adapters.mqtt.effects import Key, LastWill, Opened, Verify, Why
from fogline_edge.adapters.mqtt.intake import Intake
from fogline_edge.adapters.mqtt.lasting import Lives, Wills
from fogline_edge.adapters.mqtt.session import Border
from fogline_edge.adapters.mqtt.sessions import Sessions
from fogline_edge.adapters.mqtt.topics import Topics
from fogline_edge.adapters.mqtt.users import Users, load_users
from fogline_edge.adapters.port import Commands, Port
from fogline_edge.boot import beacon
from fogline_edge.settings import LimitSettings, MqttSettings

_log = logging.getLogger(__name__)

_VERIFICATIONS = 2
"""How many passwords are checked at once."""
_EPOCH_BYTES = 8


class MqttListener:
    """Listens where `settings` says, puts what comes into `port`, acknowledges what `port` has committed.

    An `Executor`: carries `commands` to devices that subscribed to them; without, nobody can subscribe to anything.
    `rates`: how fast each device may send. `counters` may be read at any time. Raises `Misconfigured` for topic patterns
    that are none.
    """

    def __init__(
        self, port: Port, settings: MqttSettings, commands: Commands | None = None, rates: DeviceRates | None = None
    ) -> None:
        self.port = port
        self.rates = make_rates(LimitSettings()) if rates is None else rates
        self.counters = Counters()
        sessions = Sessions(lambda: secrets.token_bytes(_EPOCH_BYTES), most=2 * settings.max_connections)
        self.border = Border(
            settings=settings,
            intake=Intake(port.tenant, port.gateway, Topics(port.tenant, settings.topics), self.counters),
            with_users=settings.users is not None,
            new_client_id=lambda: f"auto-{secrets.token_hex(8)}",
            with_commands=commands is not None,
            now=beacon,
            counters=self.counters,
            sessions=sessions,
            crowded=lambda: port.crowded,
        )
        self.dispatch = Dispatch(port, commands, self, sessions, counters=self.counters, wills=self.border.wills)
        self._wills = Wills(self.dispatch, settings.max_connections)
        self._lives = Lives(port, sessions, self.dispatch, self.counters)
        self._settings = settings
        self._users: Users | None = None
        self._server: asyncio.Server | None = None
        self._sockets: set[Connection] = set()
        self._silent: dict[Connection, None] = {}
        self._live: dict[Key, Connection] = {}
        self._flushes: list[Callable[[], None]] = []
        self._verifying: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_VERIFICATIONS)
        self._empty = asyncio.Event()

    async def start(self) -> None:
        """Listen. Raises `Misconfigured`: no users file and not loopback, a bad users file, or an address that is not free."""
        settings = self._settings
        if settings.users is None:
            require_loopback(settings.host, "mqtt.host")
        else:
            self._users = await asyncio.to_thread(load_users, Path(settings.users))
        self._lives.restore()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Connection(self), settings.host, settings.port, backlog=1024)
        except OSError as error:
            self._lives.close()
            raise Misconfigured(cannot_listen(error, "mqtt", settings.host, settings.port)) from None
        _log.info("MQTT listens on %s:%s", *self.address)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened on. Only after `start`."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def close(self) -> None:
        """Accept nothing more, tell the clients, publish their wills, and return when all sockets are closed.

        What was not acknowledged stays so: the clients send it again. Safe to call twice, and without `start`.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for connection in list(self._sockets):
            connection.shut_down()
        for task in self._verifying:
            task.cancel()
        await asyncio.gather(*self._verifying, return_exceptions=True)
        self._wills.close()
        self._lives.close()
        if self._sockets:
            self._empty.clear()
            await self._empty.wait()
        await server.wait_closed()

    def joined(self, connection: Connection) -> bool:
        """Take a socket in. When there are too many, the one that has said nothing for longest makes room."""
        self.counters.connections += 1
        self._sockets.add(connection)
        self.counters.connected += 1
        if len(self._live) + len(self._silent) >= self._settings.max_connections:
            if not self._silent:
                self.counters.over_limit += 1
                return False
            next(iter(self._silent)).drop(Why.OVER_LIMIT, "too many connections, and this one was silent for longest")
        self._silent[connection] = None
        return True

    def opened(self, connection: Connection, opened: Opened) -> None:
        """A client is in: end its former connection, and see to a will that still waits (5: 3.1.3.2.2)."""
        former = self._live.get(opened.key)
        if former is not None:
            former.take_over(resumed=opened.resumed)
        self._wills.reopened(opened.key, resumed=opened.resumed)
        self._silent.pop(connection, None)
        self._live[opened.key] = connection

    def verify(self, connection: Connection, verify: Verify) -> None:
        """Check a password in a thread, a few at a time."""
        task = asyncio.get_running_loop().create_task(self._verify(connection, verify), name="mqtt password")
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)

    async def _verify(self, connection: Connection, verify: Verify) -> None:
        assert self._users is not None
        async with self._turns:
            if connection.ending:
                return
            ok = await asyncio.to_thread(self._users.verify, verify.name, verify.password)
        if not connection.ending:
            connection.flow.verified(ok=ok)

    def schedule(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn, together with all others."""
        if not self._flushes:
            asyncio.get_running_loop().call_soon(self._flush)
        self._flushes.append(flush)

    def _flush(self) -> None:
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            flush()

    def ended(self, connection: Connection, key: Key | None, will: LastWill | None) -> None:
        """A session is over: its client is out, and its will is published, now or later."""
        self._silent.pop(connection, None)
        if key is not None and self._live.get(key) is connection:
            del self._live[key]
        if will is not None:
            self._wills.add(key, will)
        if key is not None:
            self._lives.watch()

    def execute(self, command: Command) -> None:
        """As `Executor.execute`."""
        self.dispatch.execute(command)

    def abandon(self, command: Command) -> None:
        """As `Executor.abandon`."""
        self.dispatch.abandon(command)

    def gone(self, connection: Connection) -> None:
        """A socket is closed."""
        self._sockets.discard(connection)
        self.counters.connected -= 1
        if not self._sockets:
            self._empty.set()


def make_rates(limits: LimitSettings) -> DeviceRates:
    """A full bucket for every device, of these limits."""
    return DeviceRates(limits.device_events_s, limits.device_burst)
