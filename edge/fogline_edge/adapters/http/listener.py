"""The HTTP listener: its server socket, and the composition with logins, request handler and commands."""

import asyncio
import logging
from collections.abc import Iterator

from fogline.process.rates import DeviceRates
from fogline.transport.byte_budget import ByteBudget
from fogline.transport.loopback import is_loopback
from fogline.transport.unnamed_sockets import UnnamedSockets
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.http.access import HttpLogins
from fogline_edge.adapters.http.command_polls import HttpPolls
from fogline_edge.adapters.http.connection import HttpConnection
from fogline_edge.adapters.http.counters import HttpCounters
from fogline_edge.adapters.http.paths import HttpPaths
from fogline_edge.adapters.http.request_handler import HttpRequestHandler
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.adapters.sockets.listening import Addresses, ListeningPlace, addresses_of, listen
from fogline_edge.adapters.sockets.tls_layer import TlsLayer
from fogline_edge.settings import HttpSettings

LINGERING = 100
"""The most sockets over the limit that are told so. Those beyond are closed at once."""

_log = logging.getLogger(__name__)


class HttpListener:
    """Listens at the address of `settings`, puts requests into `port`, and responds after the commit.

    Without `commands`, `hono-ttd` is ignored. Without `bodies`, large bodies are refused. Raises `Misconfigured` for an invalid
    path pattern.
    """

    def __init__(
        self,
        port: Port,
        settings: HttpSettings,
        rates: DeviceRates,
        commands: CommandPort | None = None,
        budget: ByteBudget | None = None,
        *,
        bodies: BodyUploads | None = None,
    ) -> None:
        self.budget = budget or ByteBudget()
        self.counters = HttpCounters()
        self.settings = settings
        self._port = port
        self._polls = None if commands is None else HttpPolls(commands, settings.max_asks, self.counters)
        paths = HttpPaths(port.tenant, settings.paths)
        self.handler = HttpRequestHandler(port, settings, paths, rates, commands, self._polls, self.counters, bodies)
        self._servers: dict[str, asyncio.Server] = {}
        self._sockets: dict[HttpConnection, str] = {}
        self._waiting = UnnamedSockets[HttpConnection]()
        self._tasks: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()

    async def start(self) -> None:
        """Listen. Raises `Misconfigured` for a peer that could get in without a login, a bad file, or an address in use."""
        settings = self.settings
        self.logins = await asyncio.to_thread(HttpLogins, self._port.tenant, settings)
        self._servers = await listen(self._places())
        if "http" in self._servers and not is_loopback(settings.host):
            _log.warning("http.plain_on_lan: passwords and events cross the network of %s in clear text", settings.host)
        for name, address in self.addresses.items():
            _log.info("the HTTP server (%s) accepts connections on %s:%s", name, *address)

    def _places(self) -> Iterator[ListeningPlace]:
        settings, tls = self.settings, self.settings.tls
        if settings.plain_port is not None:
            yield ListeningPlace("http", "http", settings.host, settings.plain_port, lambda: HttpConnection(self))
        if tls is not None:
            yield ListeningPlace(
                "https", "http.tls", tls.host, tls.port, lambda: TlsLayer(self.logins.tls_context(), HttpConnection(self))
            )

    @property
    def addresses(self) -> Addresses:
        """Host and port of each listening socket: `http` without TLS, `https` with it."""
        return addresses_of(self._servers)

    async def close(self) -> None:
        """Respond to who waits for a command, close all sockets and stop. Uncommitted requests are not answered.

        Safe to call twice, and without `start`.
        """
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()
        if self._polls is not None:
            self._polls.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._sockets):
            connection.leave()
        if self._sockets:
            self._empty.clear()
            await self._empty.wait()
        for server in servers.values():
            await server.wait_closed()

    def joined(self, connection: HttpConnection, host: str) -> bool:
        """See `HttpConnectionOwner.joined`."""
        self.counters.connections += 1
        self.counters.connected += 1
        over = len(self._sockets) - self.settings.max_connections
        self._sockets[connection] = host
        if over >= 0:
            self.counters.over_limit += 1
            if over >= LINGERING:
                connection.leave()
                return False
            first = self._waiting.first_to_go()
            if first is None:
                return False
            first.leave()
        self._waiting.add(connection, host)
        return True

    def waits(self, connection: HttpConnection, *, waits: bool) -> None:
        """See `HttpConnectionOwner.waits`."""
        self._waiting.discard(connection)
        if waits:
            self._waiting.add(connection, self._sockets[connection])

    def own(self, task: asyncio.Task[None]) -> None:
        """See `HttpConnectionOwner.own`."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def gone(self, connection: HttpConnection) -> None:
        """See `HttpConnectionOwner.gone`."""
        self._waiting.discard(connection)
        if self._sockets.pop(connection, None) is not None:
            self.counters.connected -= 1
        if not self._sockets:
            self._empty.set()
