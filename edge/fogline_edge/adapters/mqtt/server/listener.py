"""The MQTT listener: accepts sockets, registers clients, and checks passwords."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator

from fogline.address import shown
from fogline.errors import Misconfigured, SlowDown
from fogline.process.login_turns import LoginTurns
from fogline.process.rates import DeviceRates
from fogline.transport.byte_budget import ByteBudget
from fogline.transport.loopback import is_loopback
from fogline.transport.unnamed_sockets import UnnamedSockets
from fogline.transport.websocket_request import Subprotocol
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.device_acl import DeviceAcl
from fogline_edge.adapters.mqtt.counters import MqttCounters
from fogline_edge.adapters.mqtt.hono.event_filters import SubscriberRights
from fogline_edge.adapters.mqtt.hono.intake import ClientKey, PublishIntake
from fogline_edge.adapters.mqtt.hono.topics import Topics
from fogline_edge.adapters.mqtt.protocol.primitives import Reason
from fogline_edge.adapters.mqtt.server.access import ListenerAccess
from fogline_edge.adapters.mqtt.server.connection import ClientConnection
from fogline_edge.adapters.mqtt.server.dispatch import Dispatch
from fogline_edge.adapters.mqtt.server.session_expiry import SessionExpiry
from fogline_edge.adapters.mqtt.server.wills import DelayedWills
from fogline_edge.adapters.mqtt.session.client_protocol import ProtocolContext
from fogline_edge.adapters.mqtt.session.effects import ClientAccepted, CloseReason, LastWill, Verify
from fogline_edge.adapters.mqtt.session.sessions import Sessions
from fogline_edge.adapters.port import CommandPort, Port
from fogline_edge.adapters.sockets.listening import Addresses, ListeningPlace, addresses_of, listen
from fogline_edge.adapters.sockets.tls_layer import TlsLayer
from fogline_edge.listener_settings import WebSocketSettings
from fogline_edge.machine.boot import beacon
from fogline_edge.settings import LimitSettings, MqttSettings

_log = logging.getLogger(__name__)

_MQTT = Subprotocol("mqtt", "MQTT", b"\x10")  # 5: 6.0; a connection begins with CONNECT
_VERIFICATIONS = 2  # the most passwords that are checked at once; addresses take turns
LOOK_S = 5.0
"""How often the file of users is compared with the logins of the open connections."""
LINGERING = 100
"""The most sockets that wait for their clients to read the last packet. Beyond that the oldest is closed at once."""


class MqttListener:
    """Puts the messages of its clients into `port`, and acknowledges each after its commit. `counters` may be read always.

    Without `commands` no topic filter is granted. Without `bodies`, large bodies are refused.

    Raises `Misconfigured` for an invalid topic pattern or `[mqtt.acl]`.
    """

    def __init__(
        self,
        port: Port,
        settings: MqttSettings,
        commands: CommandPort | None = None,
        rates: DeviceRates | None = None,
        budget: ByteBudget | None = None,
        *,
        bodies: BodyUploads | None = None,
    ) -> None:
        self.port = port
        self.bodies = bodies
        self.budget = budget or ByteBudget()
        self.rates = make_rates(LimitSettings()) if rates is None else rates
        self.counters = MqttCounters()
        sessions, acl = Sessions(most=2 * settings.max_connections), DeviceAcl(settings.acl, "mqtt.acl")
        self.context = ProtocolContext(
            settings=settings,
            max_body_bytes=0 if bodies is None else bodies.most,
            intake=PublishIntake(port.tenant, port.gateway, Topics(port.tenant, settings.topics), self.counters, acl),
            with_users=settings.users is not None,
            new_client_id=lambda: f"auto-{secrets.token_hex(8)}",
            with_commands=commands is not None,
            now=beacon,
            counters=self.counters,
            sessions=sessions,
            crowded=lambda: port.crowded,
            subscribers=SubscriberRights(settings.subscribers, settings.acl),
        )
        self.dispatch = Dispatch(port, commands, sessions, counters=self.counters, wills=self.context.wills)
        self._wills = DelayedWills(self.dispatch, settings.max_connections)
        self._session_expiry = SessionExpiry(port, sessions, self.dispatch, self.counters)
        self._settings = settings
        self._access: ListenerAccess | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._servers: dict[str, asyncio.Server] = {}
        self._sockets: set[ClientConnection] = set()
        self._unnamed = UnnamedSockets[ClientConnection]()
        self._lingering: dict[ClientConnection, None] = {}
        self._by_client: dict[ClientKey, ClientConnection] = {}
        self._flushes: list[Callable[[], None]] = []
        self._verifying: set[asyncio.Task[None]] = set()
        self._verifications = LoginTurns(_VERIFICATIONS)
        self._empty = asyncio.Event()

    async def start(self) -> None:
        """Listen. Raises `Misconfigured` for a peer that could get in without a login, a bad file, or an address in use."""
        self._access = await asyncio.to_thread(ListenerAccess, self._settings)
        if self._settings.users is not None:
            self._look()
        self._session_expiry.restore()
        try:
            self._servers = await listen(self._places(self._access))
        except Misconfigured:
            self._session_expiry.timer.cancel()
            raise
        for name, host in (("mqtt", self._settings.host), ("mqtt-ws", self._settings.websocket_host)):
            if name in self._servers and not is_loopback(host):
                _log.warning("mqtt.plain_on_lan: passwords and events cross the network of %s in clear text", host)
        self.dispatch.feed.open()
        for name, address in self.addresses.items():
            _log.info("the MQTT listener (%s) accepts connections on %s:%s", name, *address)

    def _places(self, access: ListenerAccess) -> Iterator[ListeningPlace]:
        settings, tls = self._settings, self._settings.tls
        if settings.plain_port is not None:
            yield ListeningPlace("mqtt", "mqtt", settings.host, settings.plain_port, lambda: ClientConnection(self))
        if tls is not None:
            yield ListeningPlace(
                "mqtts", "mqtt.tls", tls.host, tls.port, lambda: TlsLayer(access.tls_context(), ClientConnection(self))
            )
        if settings.websocket is not None:
            yield _websocket(self, settings, settings.websocket, access)

    @property
    def addresses(self) -> Addresses:
        """Host and port of each listening socket: `mqtt` without TLS, `mqtts` with it; `mqtt-ws`, `mqtt-wss` over WebSocket."""
        return addresses_of(self._servers)

    async def close(self) -> None:
        """Stop accepting, disconnect all clients, publish their wills, and return after all sockets are closed.

        Messages that are not acknowledged stay so: the clients send them again. Safe to call twice, and without `start`.
        """
        if self._looking is not None:
            self._looking.cancel()
        self.dispatch.feed.close()
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()
        for connection in list(self._sockets):
            connection.disconnect(Reason.SERVER_SHUTTING_DOWN, CloseReason.SHUT_DOWN, "the listener ends")
        for task in self._verifying:
            task.cancel()
        await asyncio.gather(*self._verifying, return_exceptions=True)
        self._wills.close()
        self._session_expiry.timer.cancel()
        if self._sockets:
            self._empty.clear()
            await self._empty.wait()
        for server in servers.values():
            await server.wait_closed()

    def joined(self, connection: ClientConnection, host: str) -> bool:
        """See `ConnectionOwner.joined`. If there are too many, a socket without a client makes room."""
        self.counters.connections += 1
        self._sockets.add(connection)
        self.counters.connected += 1
        while len(self._lingering) > LINGERING:
            oldest = next(iter(self._lingering))
            del self._lingering[oldest]
            oldest.drop(CloseReason.OVER_LIMIT, "")
        if len(self._by_client) + len(self._unnamed) >= self._settings.max_connections:
            first = self._unnamed.first_to_go()
            if first is None:
                self.counters.over_limit += 1
                return False
            first.drop(CloseReason.OVER_LIMIT, "too many connections, and no other of its address waits longer for its CONNECT")
        self._unnamed.add(connection, host)
        return True

    def opened(self, connection: ClientConnection, accepted: ClientAccepted) -> None:
        """Register a client, end its former connection (5: 3.1.4), and handle its waiting will (5: 3.1.3.2.2)."""
        former = self._by_client.get(accepted.key)
        if former is not None:
            detail = "another connection has the same client id"
            former.disconnect(Reason.SESSION_TAKEN_OVER, CloseReason.TAKEN_OVER, detail, resumed=accepted.resumed)
        self._wills.reopened(accepted.key, resumed=accepted.resumed)
        self._unnamed.discard(connection)
        self._by_client[accepted.key] = connection

    def verify(self, connection: ClientConnection, verify: Verify) -> None:
        """Check a password in a thread, a few at a time."""
        task = asyncio.get_running_loop().create_task(self._verify(connection, verify), name="mqtt password")
        self._verifying.add(task)
        task.add_done_callback(self._verifying.discard)

    async def _verify(self, connection: ClientConnection, verify: Verify) -> None:
        assert self._access is not None
        ok = secret = None
        try:
            async with self._verifications.turn(connection.address):
                if not connection.ending:
                    secret = self._access.secret_of(verify.name)
                    ok = await asyncio.to_thread(self._access.verify, verify.name, verify.password)
        except SlowDown:
            self.counters.logins_postponed += 1
        if ok and secret is not None:
            connection.login = verify.name, secret
        if not connection.ending:
            connection.reader.verified(ok=ok)

    def _look(self) -> None:
        """End the connections of users who were deleted, or have another password."""
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)
        assert self._access is not None
        for connection in list(self._by_client.values()):
            if connection.login is not None and self._access.secret_of(connection.login[0]) != connection.login[1]:
                detail = f"user {shown(connection.login[0])} was deleted, or has another password"
                connection.disconnect(Reason.NOT_AUTHORIZED, CloseReason.REFUSED, detail)

    def schedule(self, flush: Callable[[], None]) -> None:
        """See `ListenerContext.schedule`. One callback of the loop serves all connections."""
        if not self._flushes:
            asyncio.get_running_loop().call_soon(self._flush)
        self._flushes.append(flush)

    def _flush(self) -> None:
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            flush()

    def ended(self, connection: ClientConnection, key: ClientKey | None, will: LastWill | None) -> None:
        """Remove the client of an ended connection, and publish its will, now or after its delay."""
        self._unnamed.discard(connection)
        self._lingering[connection] = None
        if key is not None and self._by_client.get(key) is connection:
            del self._by_client[key]
        if will is not None:
            self._wills.add(key, will)
        if key is not None:
            self._session_expiry.timer.restart()

    def gone(self, connection: ClientConnection) -> None:
        """See `ConnectionOwner.gone`."""
        self._sockets.discard(connection)
        self._lingering.pop(connection, None)
        self.counters.connected -= 1
        if not self._sockets:
            self._empty.set()


def _websocket(
    listener: MqttListener, settings: MqttSettings, web: WebSocketSettings, access: ListenerAccess
) -> ListeningPlace:
    from fogline.transport.websocket_handshake import OpeningHandshake, OriginRule  # noqa: PLC0415 - as the next
    from fogline_edge.adapters.mqtt.server.websocket_layer import WebSocketLayer  # noqa: PLC0415 - wsproto and h11 cost 3 MB, and not all need them

    host, secure = settings.websocket_host, settings.websocket_tls is not None
    rule = OriginRule(web.origins, secure=secure, loopback=is_loopback(host), key="mqtt.websocket.origins")

    def plain() -> WebSocketLayer:
        return WebSocketLayer(OpeningHandshake(_MQTT, rule, web.path), ClientConnection(listener))

    if not secure:
        return ListeningPlace("mqtt-ws", "mqtt.websocket", host, web.port, plain)
    return ListeningPlace("mqtt-wss", "mqtt.websocket", host, web.port, lambda: TlsLayer(access.websocket_context(), plain()))


def check_mqtt(tenant: str, settings: MqttSettings) -> None:
    """Check the settings of a listener and their files. Raises `Misconfigured`."""
    Topics(tenant, settings.topics)
    DeviceAcl(settings.acl, "mqtt.acl")
    SubscriberRights(settings.subscribers, settings.acl)
    ListenerAccess(settings)


def make_rates(limits: LimitSettings) -> DeviceRates:
    """Return the rate limits of devices, by the settings."""
    return DeviceRates(limits.device_events_s, limits.device_burst)
