"""The CoAP listener: socket, message layer, service and commands, wired."""

import logging

from fogline.settings import require_loopback
from fogline_edge.adapters.coap.asks import Asks
from fogline_edge.adapters.coap.counters import Counters
from fogline_edge.adapters.coap.messages import Messages
from fogline_edge.adapters.coap.paths import Paths
from fogline_edge.adapters.coap.service import Service
from fogline_edge.adapters.coap.serving import Serving
from fogline_edge.adapters.coap.udp import UdpSocket, bind
from fogline_edge.adapters.coap.wire import Endpoint
from fogline_edge.adapters.port import Commands, Port
from fogline_edge.settings import CoapSettings

_log = logging.getLogger(__name__)


class CoapListener:
    """Listens where `settings` says, puts what comes into `port`, answers what `port` has committed.

    `commands`: whose commands it carries; without, `hono-ttd` and `coap.devices` mean nothing. `counters` may be read
    at any time. Raises `Misconfigured` for path patterns that are none.
    """

    def __init__(self, port: Port, settings: CoapSettings, commands: Commands | None = None) -> None:
        self.counters = Counters()
        self._port = port
        self._settings = settings
        self._commands = commands
        self._paths = Paths(port.tenant, settings.paths)
        self._socket: UdpSocket | None = None
        self._messages: Messages | None = None
        self._asks: Asks | None = None
        self._serving: Serving | None = None

    async def start(self) -> None:
        """Listen. Raises `Misconfigured`: not loopback, an address that is not free, a device's URI that is none."""
        settings, counters, commands = self._settings, self.counters, self._commands
        require_loopback(settings.host, "coap.host")
        if commands is not None:
            self._asks = Asks(commands, self._port.tenant, settings.max_asks, counters)
            self._serving = Serving(commands, settings, counters)
        raw = await bind(settings.host, settings.port)
        service = Service(self._port, settings, paths=self._paths, commands=commands, asks=self._asks, counters=counters)
        messages = self._messages = Messages(settings, counters, self._send, service.serve)
        service.messages = messages
        if self._asks is not None:
            self._asks.messages = messages
        self._socket = UdpSocket(raw, messages.received, counters)
        if self._serving is not None:
            await self._serving.start()
        _log.info("CoAP listens on %s:%s", *self.address)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are listened on. Only after `start`."""
        assert self._socket is not None
        host, port = self._socket.address[:2]
        return host, port

    async def close(self) -> None:
        """Answer the devices that wait for a command, and read nothing more.

        What was not answered stays so: the devices send it again. Safe to call twice, and without `start`.
        """
        if self._asks is not None:
            self._asks.close()
        if self._messages is not None:
            self._messages.close()
        if self._socket is not None:
            self._socket.close()
        if self._serving is not None:
            serving, self._serving = self._serving, None
            await serving.close()

    def _send(self, data: bytes, endpoint: Endpoint) -> None:
        if self._socket is not None:
            self._socket.send(data, endpoint)
