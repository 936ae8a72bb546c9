"""The MQTT listener: accepts sockets, knows who is connected, and owns what outlives a connection."""

import asyncio
import errno
import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from fogline.errors import Misconfigured, SlowDown
from fogline.event import Arrival, Receipt
from fogline.settings import require_loopback
from fogline_edge.adapters.mqtt.connection import Connection
from fogline_edge.adapters.mqtt.counters import Counters
from fogline_edge.adapters.mqtt.intake import Intake
from fogline_edge.adapters.mqtt.session import Border, LastWill, Opened, Verify
from fogline_edge.adapters.mqtt.sessions import Key
from fogline_edge.adapters.mqtt.topics import Topics
from fogline_edge.adapters.mqtt.users import Users, load_users
from fogline_edge.adapters.port import Port
from fogline_edge.settings import MqttSettings

_log = logging.getLogger(__name__)

_VERIFICATIONS = 2
"""How many passwords are checked at once."""


class MqttListener:
    """Listens where `settings` says, puts what comes into `port`, acknowledges what `port` has committed.

    `counters` may be read at any time. Raises `Misconfigured` for topic patterns that are none.
    """

    def __init__(self, port: Port, settings: MqttSettings) -> None:
        self.port = port
        self.counters = Counters()
        self.border = Border(
            settings=settings,
            intake=Intake(port.tenant, port.gateway, Topics(port.tenant, settings.topics)),
            with_users=settings.users is not None,
            new_client_id=lambda: f"auto-{secrets.token_hex(8)}",
        )
        self._settings = settings
        self._users: Users | None = None
        self._server: asyncio.Server | None = None
        self._sockets: set[Connection] = set()
        self._silent: dict[Connection, None] = {}
        self._live: dict[Key, Connection] = {}
        self._wills: dict[Key, tuple[asyncio.TimerHandle, Arrival]] = {}
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
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Connection(self), settings.host, settings.port, backlog=1024)
        except OSError as error:
            raise Misconfigured(_refusal(error, settings)) from None
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
        for timer, arrival in self._wills.values():
            timer.cancel()
            self._publish(arrival)
        self._wills.clear()
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
            next(iter(self._silent)).give_way()
        self._silent[connection] = None
        return True

    def opened(self, connection: Connection, opened: Opened) -> None:
        """A client is in: end its former connection, and see to a will that still waits (5: 3.1.3.2.2)."""
        former = self._live.get(opened.key)
        if former is not None:
            former.take_over(resumed=opened.resumed)
        timer, arrival = self._wills.pop(opened.key, (None, None))
        if timer is not None and arrival is not None:
            timer.cancel()
            if not opened.resumed:
                self._publish(arrival)
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
        if will is None:
            return
        if key is None or not will.delay_s or len(self._wills) >= self._settings.max_connections:
            self._publish(will.arrival)
            return
        timer = asyncio.get_running_loop().call_later(will.delay_s, self._publish_late, key)
        self._wills[key] = timer, will.arrival

    def _publish_late(self, key: Key) -> None:
        self._publish(self._wills.pop(key)[1])

    def _publish(self, arrival: Arrival) -> None:
        """Put a will, as soon as there is room."""
        try:
            self.port.put(arrival, _nobody_waits)
        except SlowDown:
            self.port.when_room(lambda: self._publish(arrival))
        else:
            self.counters.received += 1

    def gone(self, connection: Connection) -> None:
        """A socket is closed."""
        self._sockets.discard(connection)
        self.counters.connected -= 1
        if not self._sockets:
            self._empty.set()


def _nobody_waits(receipt: Receipt) -> None:
    """A will has no sender any more that could be told."""


def _refusal(error: OSError, settings: MqttSettings) -> str:
    where = f"mqtt: cannot listen on {settings.host}:{settings.port}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{where}: another program listens there; end it, or set another mqtt.port"
        case errno.EACCES:
            return f"{where}: this user may not; set an mqtt.port over 1023"
        case errno.EADDRNOTAVAIL:
            return f"{where}: this machine has no such address; set mqtt.host"
    return f"{where}: {os.strerror(error.errno) if error.errno and error.errno > 0 else error}"
