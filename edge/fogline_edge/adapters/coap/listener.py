"""The CoAP listener: its UDP socket, and the composition with message layer, request handler and commands."""

import asyncio
import logging
import socket
from collections.abc import Callable

from fogline.errors import Misconfigured
from fogline.transport.byte_budget import ByteBudget
from fogline.transport.loopback import is_loopback
from fogline_edge.adapters.bind_error import cannot_listen
from fogline_edge.adapters.coap.access import check_coap
from fogline_edge.adapters.coap.command_client import CoapCommandClient
from fogline_edge.adapters.coap.command_polls import CommandPolls
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.message_layer import MessageLayer
from fogline_edge.adapters.coap.observations import Observations
from fogline_edge.adapters.coap.paths import Paths
from fogline_edge.adapters.coap.request_handler import CoapRequestHandler
from fogline_edge.adapters.coap.wire import Endpoint
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings

_BUFFER_BYTES = 65_536  # more than the longest UDP datagram: one that fills the buffer was cut, and is dropped
_BATCH = 64  # datagrams read in one turn of the loop
_KERNEL_BUFFER_BYTES = 1_048_576

_log = logging.getLogger(__name__)


class UdpSocket:
    """A bound UDP socket on the running loop."""

    def __init__(self, raw: socket.socket, counters: CoapCounters) -> None:
        self._raw = raw
        self._counters = counters
        self._buffer = bytearray(_BUFFER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._open = True
        self.address: Endpoint = raw.getsockname()

    def listen(self, received: Callable[[bytes, Endpoint], None]) -> None:
        """Call `received` with each datagram, until `close`."""
        self._loop.add_reader(self._raw, self._readable, received)

    def send(self, data: bytes, endpoint: Endpoint) -> None:
        """Send a datagram. One that the system refuses is counted and lost, as the network may lose it anyway."""
        if not self._open:
            return
        try:
            self._raw.sendto(data, endpoint)
        except OSError:
            self._counters.unsent += 1

    def close(self) -> None:
        """Safe to call twice."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._raw)
            self._raw.close()

    def _readable(self, received: Callable[[bytes, Endpoint], None]) -> None:
        for _ in range(_BATCH):
            if not self._open:
                return
            try:
                size, endpoint = self._raw.recvfrom_into(self._buffer)
            except OSError:  # nothing more to read, or an ICMP error of an earlier datagram
                return
            if size == _BUFFER_BYTES:
                self._counters.cut += 1
            else:
                received(bytes(memoryview(self._buffer)[:size]), endpoint)


class CoapListener:
    """Listens at the address of `settings`, puts requests into `port`, and responds after the commit.

    Without `commands`, `hono-ttd`, Observe and `coap.devices` are ignored. A device in `credentials` needs protection.
    Raises `Misconfigured` for an invalid path pattern.
    """

    def __init__(
        self,
        port: Port,
        settings: CoapSettings,
        commands: CommandPort | None = None,
        budget: ByteBudget | None = None,
        credentials: CredentialStore | None = None,
    ) -> None:
        self.counters = CoapCounters()
        self._budget = budget or ByteBudget()
        self._credentials = credentials if credentials is not None else CredentialStore()
        self._port = port
        self._settings = settings
        self._commands = commands
        self._paths = Paths(port.tenant, settings.paths)
        self._socket: UdpSocket | None = None
        self._messages: MessageLayer | None = None
        self._polls: CommandPolls | None = None
        self._observations: Observations | None = None
        self._client: CoapCommandClient | None = None

    async def start(self) -> None:
        """Listen. Raises `Misconfigured`: beyond loopback, an address in use, an invalid URI of a device."""
        settings, counters, commands = self._settings, self.counters, self._commands
        check_coap(settings)
        if not is_loopback(settings.host):
            _log.warning("coap.plain_on_lan: everybody who reaches %s can send events of any device", settings.host)
        if commands is not None:
            self._client = CoapCommandClient(commands, settings, counters)
        self._socket = UdpSocket(await _bind(settings.host, settings.port), counters)
        messages = self._messages = MessageLayer(settings, counters, self._socket.send)
        if commands is not None:
            self._polls = CommandPolls(commands, self._port.tenant, settings.max_asks, messages=messages, counters=counters)
            self._observations = self._make_observations(commands, messages)
        handler = CoapRequestHandler(
            self._port,
            settings,
            self._paths,
            messages,
            commands,
            self._polls,
            self._observations,
            counters,
            self._budget,
            self._credentials,
        )
        self._socket.listen(lambda data, endpoint: messages.received(data, endpoint, handler.serve))
        if self._client is not None:
            await self._client.start()
        _log.info("CoAP listens on %s:%s", *self.address)

    def _make_observations(self, commands: CommandPort, messages: MessageLayer) -> Observations:
        port, settings = self._port, self._settings
        return Observations(
            commands, port.put, port.tenant, settings.max_observers, settings.observation_s, messages, self.counters
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port. Only after `start`."""
        assert self._socket is not None
        host, port = self._socket.address[:2]
        return host, port

    async def close(self) -> None:
        """Respond to polls, end observations and stop. Devices retransmit uncommitted requests, which get no response.

        Safe at any time.
        """
        if self._polls is not None:
            self._polls.close()
        if self._observations is not None:
            self._observations.close()
        if self._messages is not None:
            self._messages.close()
        if self._socket is not None:
            self._socket.close()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()


async def _bind(host: str, port: int) -> socket.socket:
    """Return a bound, non-blocking socket. Raises `Misconfigured` if the address is not available."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        raw = socket.socket(family, kind, protocol)
        try:
            raw.setblocking(False)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BUFFER_BYTES)
            raw.bind(address)
        except OSError:
            raw.close()
            raise
    except OSError as error:
        raise Misconfigured(cannot_listen(error, "coap", host, port)) from None
    return raw
