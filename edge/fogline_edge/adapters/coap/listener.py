"""The CoAP listener: its UDP sockets, and the composition with message layer, request handler and commands."""

import logging

from fogline.transport.byte_budget import ByteBudget
from fogline.transport.loopback import is_loopback
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.coap.access import check_coap
from fogline_edge.adapters.coap.command_client import CoapCommandClient
from fogline_edge.adapters.coap.command_polls import CommandPolls
from fogline_edge.adapters.coap.counters import CoapCounters
from fogline_edge.adapters.coap.dtls.dtls_counters import DtlsCounters
from fogline_edge.adapters.coap.dtls.session import SessionEndpoint
from fogline_edge.adapters.coap.dtls.transport import DtlsTransport
from fogline_edge.adapters.coap.exchanges import Exchange
from fogline_edge.adapters.coap.message_layer import MessageLayer
from fogline_edge.adapters.coap.observations import Observations
from fogline_edge.adapters.coap.oscore.context_table import ContextTable
from fogline_edge.adapters.coap.oscore.door import OscoreDoor
from fogline_edge.adapters.coap.paths import Paths
from fogline_edge.adapters.coap.request_handler import CoapRequestHandler
from fogline_edge.adapters.coap.udp_socket import UdpSocket, bind_udp
from fogline_edge.adapters.coap.wire import CoapMessage, Endpoint
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.credentials.credential_store import CredentialStore
from fogline_edge.settings import CoapSettings

_log = logging.getLogger(__name__)


class CoapListener:
    """Listens at the address of `settings`, puts requests into `port`, and responds after the commit.

    Without `commands`, `hono-ttd`, Observe and `coap.devices` are ignored. A device in `credentials` needs protection.
    Without `bodies`, large bodies are refused. Raises `Misconfigured` for an invalid path pattern.
    """

    def __init__(
        self,
        port: Port,
        settings: CoapSettings,
        commands: CommandPort | None = None,
        budget: ByteBudget | None = None,
        credentials: CredentialStore | None = None,
        *,
        bodies: BodyUploads | None = None,
    ) -> None:
        self._bodies = bodies
        self.counters = CoapCounters()
        self._budget = budget or ByteBudget()
        self._credentials = credentials if credentials is not None else CredentialStore()
        self._port = port
        self._settings = settings
        self._commands = commands
        self._paths = Paths(port.tenant, settings.paths)
        self._plain: UdpSocket | None = None
        self._dtls: DtlsTransport | None = None
        self._messages: MessageLayer | None = None
        self._polls: CommandPolls | None = None
        self._observations: Observations | None = None
        self._client: CoapCommandClient | None = None
        self._handler: CoapRequestHandler | None = None
        self._contexts: ContextTable | None = None

    async def start(self) -> None:
        """Listen. Raises `Misconfigured`: beyond loopback, an address in use, an invalid URI of a device."""
        settings, counters, commands = self._settings, self.counters, self._commands
        check_coap(settings)
        if settings.plain_port is not None and settings.plain_on_lan and not is_loopback(settings.host):
            _log.warning(
                "coap.plain_on_lan: everybody who reaches %s can send events of any device without a key", settings.host
            )
        if settings.oscore:
            self._contexts = ContextTable(self._port, self._credentials)
            self._credentials.when_ended(self._key_ended)
        if commands is not None:
            self._client = CoapCommandClient(commands, settings, counters, self._credentials, self._contexts)
        messages = self._messages = MessageLayer(settings, counters, self._send)
        if commands is not None:
            self._polls = CommandPolls(commands, self._port.tenant, settings.max_asks, messages, counters, self._credentials)
            self._observations = self._make_observations(commands, messages)
        handler = self._handler = CoapRequestHandler(
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
            self._bodies,
        )
        await self._listen(messages, handler)
        if self._client is not None:
            await self._client.start()

    async def _listen(self, messages: MessageLayer, handler: CoapRequestHandler) -> None:
        settings = self._settings
        if settings.plain_port is not None:
            self._plain = UdpSocket(await bind_udp("coap", settings.host, settings.plain_port), self.counters)
            contexts = self._contexts
            serve = handler.serve if contexts is None else OscoreDoor(contexts, messages, handler.serve, self.counters).serve
            self._plain.listen(lambda data, endpoint: messages.received(data, endpoint, serve))
        if settings.dtls is not None:
            udp = UdpSocket(await bind_udp("coap.dtls", settings.dtls.host, settings.dtls.port), self.counters)
            self._dtls = DtlsTransport(udp, settings.dtls, self._credentials, self._in_session, self._session_ended)
        for name, address in self.addresses.items():
            _log.info("%s listens on %s:%s", "CoAP" if name == "coap" else "CoAP over DTLS", *address)

    def _key_ended(self, device: str, number: int) -> None:
        if self._contexts is not None:
            self._contexts.ended(device, number)
        for each in (self._polls, self._observations):
            if each is not None:
                each.key_ended(device, number)

    def _in_session(self, data: bytes, endpoint: SessionEndpoint) -> None:
        """Take in a datagram that a device has sent in its session: it speaks for this device, and for no other."""
        messages, handler = self._messages, self._handler
        assert messages is not None
        assert handler is not None

        def serve(message: CoapMessage, exchange: Exchange) -> None:
            exchange.sender = endpoint.device
            handler.serve(message, exchange)

        messages.received(data, endpoint, serve)

    def _session_ended(self, endpoint: SessionEndpoint) -> None:
        for each in (self._polls, self._observations):
            if each is not None:
                each.endpoint_gone(endpoint.device, endpoint)

    def _send(self, data: bytes, endpoint: Endpoint) -> None:
        if not isinstance(endpoint, SessionEndpoint):
            assert self._plain is not None
            self._plain.send(data, endpoint)
        elif self._dtls is not None:
            self._dtls.send(data, endpoint)

    def _make_observations(self, commands: CommandPort, messages: MessageLayer) -> Observations:
        port, settings = self._port, self._settings
        return Observations(
            commands,
            port.put,
            port.tenant,
            settings.max_observers,
            settings.observation_s,
            messages,
            self.counters,
            self._credentials,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port without DTLS. Only after `start`."""
        return self.addresses["coap"]

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of `coap` and of `coaps`, as far as they are spoken. Only after `start`."""
        found = {"coap": self._plain, "coaps": self._dtls}
        return {name: each.address[:2] for name, each in found.items() if each is not None}

    @property
    def dtls_counters(self) -> DtlsCounters | None:
        """The counters of DTLS; None if it is not spoken. Only after `start`."""
        return None if self._dtls is None else self._dtls.counters

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
        if self._dtls is not None:
            self._dtls.close()
        if self._plain is not None:
            self._plain.close()
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
