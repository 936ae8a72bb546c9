"""One connection to the bridge, from hello to its end (see `fogline.gateway.hello`)."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any, TypeVar

from fogline import address
from fogline.address import shown
from fogline.amqp.dial import dial
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.login import EXTERNAL, Login
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, NOT_ALLOWED, Condition, Outcome, rejected
from fogline.amqp.scheduler import Share
from fogline.amqp.security import ClientSecurity
from fogline.amqp.sending import Sender
from fogline.amqp.wire import decode
from fogline.commands.cancel import CancelRequest, decode_cancel, is_cancel
from fogline.commands.command import Command, JournalQuery, decode_command, decode_query, is_command, is_query
from fogline.errors import Misconfigured, Poison, SlowDown, Unreachable
from fogline.gateway import hello
from fogline.gateway.credential_transfer import is_credentials
from fogline.message import Message, Property
from fogline.process.cancellation import end_tasks
from fogline.process.files.bridge_address import BridgeAddress, parse_bridge
from fogline.process.files.settings_file import require_loopback
from fogline.process.files.tls_files import check_private, client_context
from fogline.process.files.user_file import read_password
from fogline.transport.proxy.proxy_address import ProxyAddress, parse_proxy, with_password
from fogline_edge.credentials.credential_updates import CredentialUpdates
from fogline_edge.settings import ProxySettings, UplinkSettings
from fogline_edge.uplink.lanes import LaneLinks
from fogline_edge.uplink.pump import PumpContext
from fogline_edge.uplink.statistics_sender import ReadStatistics, send_statistics
from fogline_edge.uplink.stream_pumps import StreamPumps

HELLO_S = 30.0
"""Time that the bridge has to answer hello: it may have to take ownership of the shard first."""
CLOSE_S = 1.0
"""Time that the bridge has to answer the close of the connection."""
CONTROL_SHARE = Share(strict=0)
CONTROL_CREDIT = 32
"""Limit of commands in flight to this gateway."""

OnCommand = Callable[[Command | JournalQuery | CancelRequest, Callable[[Outcome], None]], None]
"""Takes a command, or a query about one, or a request to cancel one. Calls its second argument once, with the outcome."""

_VERSION = version("fogline-edge")  # once: the lookup reads the disk, and leaves a list of all packages in a reference cycle
_log = logging.getLogger("fogline.uplink")
T = TypeVar("T")


def uplink_security(settings: UplinkSettings, bridge: BridgeAddress | None = None) -> ClientSecurity:
    """Return the certificate by which the gateway proves its name, for AMQP as `bridge` speaks it. Raises `Misconfigured`."""
    websocket = bridge.websocket if bridge is not None else None
    if settings.tls is None:
        return ClientSecurity(websocket=websocket)
    if settings.tls.certificate is None:
        raise Misconfigured("[uplink.tls] needs `certificate` and `key`: a gateway proves its name by them")
    return ClientSecurity(Login(EXTERNAL), client_context(settings.tls, "uplink.tls"), websocket)


def uplink_proxy(settings: UplinkSettings) -> ProxyAddress | None:
    """Return the proxy on the way to the bridge, None for none. Raises `Misconfigured`."""
    proxy = proxy_of(settings.proxy, "uplink.proxy")
    if proxy is not None and settings.tls is None:
        require_loopback(proxy.host, "uplink.proxy.url")
    return proxy


def proxy_of(settings: ProxySettings | None, key: str) -> ProxyAddress | None:
    """Return a proxy with its password, None for none. Raises `Misconfigured`, which names `key`."""
    if settings is None:
        return None
    proxy, file = parse_proxy(settings.url, key), settings.password_file
    if file is not None:
        check_private(file, key)
        return with_password(proxy, read_password(file, key), key)
    if proxy.user:
        raise Misconfigured(f"{key}: user {proxy.user!a} needs a password: name the file that has it")
    return proxy


class Redirect(SlowDown):
    """Another bridge owns this gateway's shard; `where` is its `host:port`."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what, retry_after_s=0.0)
        self.where = where


class BridgeSession:
    """One connection to `bridge` (`host:port`). `welcomed`: the bridge has accepted the hello."""

    def __init__(  # noqa: PLR0917 - one caller
        self,
        context: PumpContext,
        bridge: str,
        on_command: OnCommand,
        statistics: ReadStatistics | None,
        on_welcome: Callable[[], None],
        credentials: CredentialUpdates | None = None,
    ) -> None:
        self._context = context
        self._bridge = bridge
        self._on_command = on_command
        self._statistics = statistics
        self._on_welcome = on_welcome
        self._credentials = credentials
        self.welcomed = False
        self._outbox = context.outbox
        self._settings = context.settings
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._welcome: asyncio.Future[hello.Welcome] = self._loop.create_future()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._hello_id = uuid.uuid4()
        self._lanes: LaneLinks | None = None
        self._pumps: StreamPumps | None = None
        self._hello: Sender | None = None

    async def run(self) -> None:
        """Connect, exchange hello, send every stream. Never returns.

        Raises `Unreachable` at the end of the connection, `SlowDown` if the bridge asks for a pause, `Redirect` if it names
        another bridge; each may be in an exception group.
        """
        bridge = parse_bridge(self._bridge, "uplink.bridge", tls=self._settings.tls is not None)
        properties: dict[str, Property] = {"tenant": self._outbox.tenant, "product": hello.PRODUCT, "version": _VERSION}
        try:
            security, proxy = uplink_security(self._settings, bridge), uplink_proxy(self._settings)
        except Misconfigured as error:  # files that are just being replaced
            raise Unreachable(str(error)) from None
        idle_timeout_s = self._settings.idle_timeout_s
        engine = Engine(
            self._outbox.gateway, hostname=bridge.host, properties=properties, security=security, idle_timeout_s=idle_timeout_s
        )
        connection = await dial(bridge.host, bridge.port, engine, self, proxy)
        try:
            await self._until_over(self._opened, HELLO_S)
            welcome = await self._say_hello(connection)
            self._compare_clocks(welcome)
            await self._learn_copy(welcome)
            await self._reconcile(welcome)
            target = str(address.IngestAddress(self._outbox.tenant, welcome.shard))
            self._lanes = LaneLinks(connection, target, self._hello_id.hex)
            self._pumps = StreamPumps(self._context, self._lanes, self._over)
            self.welcomed = True
            self._on_welcome()
            self._outbox.streams.start_sending(self._pumps.wake)
            async with self._sending_statistics(welcome.statistics_s):
                await self._pumps.run()
        finally:
            self._outbox.streams.stop_sending()
            connection.close()
            try:
                await asyncio.wait([self._over], timeout=CLOSE_S)
            finally:
                connection.abort()

    @contextlib.asynccontextmanager
    async def _sending_statistics(self, every_s: float) -> AsyncIterator[None]:
        """Send the gateway's statistics within this, if the bridge asks for them."""
        if not every_s or self._statistics is None or self._hello is None:
            yield
            return
        sending = send_statistics(self._hello, self._statistics, max(every_s, hello.MIN_STATISTICS_S))
        task = asyncio.create_task(sending, name="statistics")
        try:
            yield
        finally:
            await end_tasks(task)

    async def _say_hello(self, connection: AmqpConnection) -> hello.Welcome:
        with contextlib.suppress(Unreachable):  # without room for another stream, events go in their order
            await self._outbox.streams.split_backlog(self._settings.newest_first, self._settings.backfill_events)
        control = connection.open_session()
        here = address.Control(self._outbox.tenant, self._outbox.gateway)
        connection.open_receiver(control, "control", str(here), credit=CONTROL_CREDIT)
        self._hello = sender = connection.open_sender(
            control, "hello", str(address.HelloAddress(self._outbox.tenant)), CONTROL_SHARE, {}
        )
        streams = [hello.OpenStream(each.stream, each.lane) for each in await self._outbox.streams.pending()]
        request = hello.Hello(
            protocol=hello.PROTOCOL,
            version=_VERSION,
            gateway=self._outbox.gateway,
            beacon=self._outbox.clock.beacon(),
            streams=streams,
            epoch=self._hello_id.hex,
            copy=await self._outbox.copy.number(),
            journal=self._outbox.journal,
            credentials_key=self._credentials.begin() if self._credentials is not None else "",
        )
        message = Message(
            body=hello.encode_hello(request),
            content_type=hello.HELLO_CONTENT_TYPE,
            reply_to=str(here),
            correlation_id=self._hello_id,
        )
        sender.send(message)
        welcome = await self._until_over(self._welcome, HELLO_S)
        if welcome.redirect:
            raise Redirect(welcome.refused, self._checked(welcome.redirect))
        if welcome.refused:
            raise SlowDown(f"the bridge refuses: {welcome.refused}", retry_after_s=welcome.retry_after_s)
        return welcome

    def _compare_clocks(self, welcome: hello.Welcome) -> None:
        """Take the bridge's time as evidence that this machine's clock is right, or warn that they differ."""
        if welcome.time_ms and not self._outbox.clock.compare(welcome.time_ms * 1_000_000):
            differ_s = self._outbox.clock.time_ns() // 1_000_000_000 - welcome.time_ms // 1000
            _log.warning(
                "this machine's clock differs from the bridge's by %+d s. Check that both are synchronized (timedatectl)."
                " Until then, events are marked `unsynced`",
                differ_s,
            )

    async def _learn_copy(self, welcome: hello.Welcome) -> None:
        """Keep the number that the bridge gave this copy of the outbox, and whether a newer copy has replaced it."""
        try:
            await self._outbox.copy.learn(welcome.copy, replaced=welcome.replaced)
        except OSError as error:
            raise Unreachable(f"the number of this copy of the outbox cannot be written: {error.strerror}") from None

    async def _reconcile(self, welcome: hello.Welcome) -> None:
        """Open a new stream for each one whose sequences cannot be trusted (see `hello.resume`)."""
        now_ns = welcome.time_ms * 1_000_000 or self._outbox.clock.time_ns()
        for mark in welcome.marks:
            own = await self._outbox.streams.own(mark.stream, mark.chain_sequence, now_ns)
            if own is None:
                _log.warning("the bridge names stream %s, which this outbox does not have", shown(mark.stream))
                continue
            verdict = hello.resume(own, mark)
            if isinstance(verdict, hello.Reopen):
                await self._outbox.streams.reopen(mark.stream, own.settled, verdict.why)
            elif verdict.settled:
                self._outbox.streams.settle(mark.stream, verdict.settled)

    async def _until_over(self, future: "asyncio.Future[T]", limit_s: float) -> T:
        waited: list[asyncio.Future[Any]] = [future, self._over]
        done, _ = await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if future in done:
            return future.result()
        raise Unreachable(self._over.result() if done else f"the bridge did not answer in {limit_s:.0f} s")

    def _checked(self, where: str) -> str:
        """Return the address of a redirect if this gateway may connect there. Raises `Unreachable`."""
        tls = self._settings.tls is not None
        try:
            other = parse_bridge(where, "redirect", tls=tls)
            return str(parse_bridge(self._bridge, "uplink.bridge", tls=tls).at(other.host, other.port))
        except Misconfigured as error:
            raise Unreachable(f"the bridge redirects to an address that this gateway does not connect to: {error}") from None

    # --- Handler of the connection

    def opened(self, connection: AmqpConnection, peer: AmqpPeer) -> None:  # noqa: ARG002 - the handler's interface
        """Note the open frame of the bridge."""
        if not self._opened.done():
            self._opened.set_result(None)

    def link_requested(self, connection: AmqpConnection, link: Link) -> None:
        """Refuse: a bridge opens no links."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "a gateway accepts no links"))

    def link_closed(self, connection: AmqpConnection, link: Link, condition: Condition | None) -> None:
        """Attach the link of a lane again. Any other link ends the connection."""
        served = self._pumps is not None and self._pumps.has_settled(link)
        if self._lanes is None or not self._lanes.detached(link, condition, served=served):
            self.closed(connection, f"link {link.name} was closed: {condition or 'no reason given'}")

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Take the answer to hello, a command, a query about one, or credentials of devices."""

        def settle(outcome: Outcome) -> None:
            connection.settle(delivery, outcome, credit=1)

        try:
            message = decode(data)
            if is_command(message):
                self._on_command(decode_command(message), settle)
                return
            if is_query(message):
                self._on_command(decode_query(message), settle)
                return
            if is_cancel(message):
                self._on_command(decode_cancel(message), settle)
                return
            if is_credentials(message) and self._credentials is not None:
                self._credentials.received(message, settle)
                return
            welcome = hello.decode_welcome(message.body)
        except Poison as error:
            settle(rejected(DECODE_ERROR, str(error)))
            return
        except Exception:  # noqa: BLE001 - one message must not end the connection of all lanes, again and again
            # The journal may have the command already, so the outcome says that nothing is known.
            _log.exception("a message of the bridge failed")
            settle(MODIFIED)
            return
        settle(ACCEPTED)
        if message.correlation_id == self._hello_id and not self._welcome.done():
            self._welcome.set_result(welcome)

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """Note the end of the connection."""
        if not self._over.done():
            self._over.set_result(why)
