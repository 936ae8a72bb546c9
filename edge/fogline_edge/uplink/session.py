"""One connection to the bridge, from hello to its end (see `fogline.gateway.hello`)."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial

from fogline import address
from fogline.address import shown
from fogline.amqp.dial import dial
from fogline.amqp.driver import AmqpConnection
from fogline.amqp.engine import Engine
from fogline.amqp.events import AmqpPeer, Delivery, Link
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, MODIFIED, NOT_ALLOWED, Condition, Outcome, rejected
from fogline.amqp.wire import decode
from fogline.commands.cancel import CancelRequest, decode_cancel, is_cancel
from fogline.commands.command import Command, JournalQuery, decode_command, decode_query, is_command, is_query
from fogline.errors import Misconfigured, Poison, SlowDown, Unreachable
from fogline.gateway import hello
from fogline.gateway.credential_transfer import is_credentials
from fogline.gateway.message_signature import GatewayName
from fogline.message import Message, Property
from fogline.process.cancellation import end_tasks
from fogline.process.files.bridge_address import parse_bridge
from fogline_edge.credentials.credential_updates import CredentialUpdates
from fogline_edge.uplink.hello_exchange import HELLO_S, VERSION, HelloExchange, until_over
from fogline_edge.uplink.lanes import LaneLinks
from fogline_edge.uplink.pump import PumpContext
from fogline_edge.uplink.statistics_sender import ReadStatistics, ReportSender, send_statistics
from fogline_edge.uplink.stream_pumps import StreamPumps
from fogline_edge.uplink.via.signed_line import SignedLine
from fogline_edge.uplink.way import Way, way_to

CLOSE_S = 1.0
"""Time that the bridge has to answer the close of the connection."""
OnCommand = Callable[[Command | JournalQuery | CancelRequest, Callable[[Outcome], None]], None]
"""Takes a command, or a query about one, or a request to cancel one. Calls its second argument once, with the outcome."""

_log = logging.getLogger("fogline.uplink")


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
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._lanes: LaneLinks | None = None
        self._pumps: StreamPumps | None = None
        self._hello: HelloExchange | None = None
        self._line: SignedLine | None = None  # behind a router or a broker

    async def run(self) -> None:
        """Connect, exchange hello, send every stream. Never returns.

        Raises `Unreachable` at the end of the connection, `SlowDown` if the bridge asks for a pause, `Redirect` if it names
        another bridge; each may be in an exception group.
        """
        name = GatewayName(self._outbox.tenant, self._outbox.gateway)
        try:
            way = way_to(self._bridge, self._settings, name)
        except Misconfigured as error:  # files that are just being replaced
            raise Unreachable(str(error)) from None
        connection = await self._connect(way)
        try:
            await until_over(self._opened, self._over, HELLO_S, way.blamed)
            begin = self._credentials.begin if self._credentials is not None else str
            self._hello = HelloExchange(self._outbox, way, self._over, self._line, begin)
            with contextlib.suppress(Unreachable):  # without room for another stream, events go in their order
                await self._outbox.streams.split_backlog(self._settings.newest_first, self._settings.backfill_events)
            welcome = self._checked(await self._hello.say(connection))
            self._compare_clocks(welcome)
            await self._learn_copy(welcome)
            await self._reconcile(welcome)
            target = str(address.IngestAddress(self._outbox.tenant, welcome.shard))
            lane_sender = self._line.lane_sender if self._line is not None else None
            self._lanes = LaneLinks(connection, target, self._hello.epoch, way.capabilities, lane_sender)
            self._pumps = StreamPumps(self._context, self._lanes, self._over)
            self.welcomed = True
            self._on_welcome()
            self._outbox.streams.start_sending(self._pumps.wake)
            async with self._sending_reports(self._hello.reports, welcome.statistics_s):
                await self._pumps.run()
        finally:
            self._outbox.streams.stop_sending()
            if self._line is not None:
                self._line.close()
            connection.close()
            try:
                await asyncio.wait([self._over], timeout=CLOSE_S)
            finally:
                connection.abort()

    async def _connect(self, way: Way) -> AmqpConnection:
        properties: dict[str, Property] = {"tenant": self._outbox.tenant, "product": hello.PRODUCT, "version": VERSION}
        engine = Engine(
            self._outbox.gateway,
            hostname=way.address.host,
            properties=properties,
            security=way.security,
            idle_timeout_s=self._settings.idle_timeout_s,
        )
        try:
            connection = await dial(way.address.host, way.address.port, engine, self, way.proxy)
        except Unreachable as error:
            raise way.blamed(error) from None
        if way.identity is not None:
            self._line = SignedLine(way.identity, uuid.uuid4().hex, partial(self.closed, connection))
        return connection

    @contextlib.asynccontextmanager
    async def _sending_reports(self, reports: ReportSender, every_s: float) -> AsyncIterator[None]:
        """Send within this what the bridge expects: statistics if it asks for them, signed beacons behind a router."""
        tasks = [asyncio.create_task(self._line.keep(), name="beacons")] if self._line is not None else []
        if every_s and self._statistics is not None:
            sending = send_statistics(reports, self._statistics, max(every_s, hello.MIN_STATISTICS_S))
            tasks.append(asyncio.create_task(sending, name="statistics"))
        try:
            yield
        finally:
            await end_tasks(*tasks)

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
                await self._outbox.streams.reopen(mark.stream, own.settled, verdict.why, mark.hwm)
            elif verdict.settled:
                self._outbox.streams.settle(mark.stream, verdict.settled)

    def _checked(self, welcome: hello.Welcome) -> hello.Welcome:
        """Return the bridge's answer if it serves this gateway. Raises `SlowDown`, `Redirect` or `Unreachable`."""
        if welcome.redirect and self._line is None:  # behind a router each shard has an address of its own
            raise Redirect(welcome.refused, self._redirect(welcome.redirect))
        if welcome.refused:
            raise SlowDown(f"the bridge refuses: {welcome.refused}", retry_after_s=welcome.retry_after_s)
        return welcome

    def _redirect(self, where: str) -> str:
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
        if self._line is not None:
            self._line.link_closed(link, f"link {link.name} was closed")
        served = self._pumps is not None and self._pumps.has_settled(link)
        if self._lanes is None or not self._lanes.detached(link, condition, served=served):
            self.closed(connection, f"link {link.name} was closed: {condition or 'no reason given'}")

    def received(self, connection: AmqpConnection, delivery: Delivery, data: bytes) -> None:
        """Take the answer to hello, a command, a query about one, or credentials of devices."""
        settle = partial(connection.settle, delivery, credit=1)
        try:
            message = decode(data)
            if self._line is not None:
                settle(ACCEPTED)  # by which the router or broker is done; the bridge gets a signed outcome
                if not self._counts(self._line, message):
                    return
                settle = partial(self._line.settle, message)
            if (known := _decode_control(message)) is not None:
                self._on_command(known, settle)
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
        if self._hello is not None and self._hello.expects(message):
            self._hello.answered(message, welcome)

    def _counts(self, line: SignedLine, message: Message) -> bool:
        """Return True for a signed message that is to be settled. Take the answer to hello, and outcomes of batches."""
        if message.content_type != hello.HELLO_CONTENT_TYPE:
            return line.counts(message)
        if self._hello is not None and self._hello.expects(message) and (welcome := line.welcome(message)) is not None:
            self._hello.answered(message, welcome)
        return False

    def closed(self, connection: AmqpConnection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """Note the end of the connection."""
        if not self._over.done():
            self._over.set_result(why)


def _decode_control(message: Message) -> Command | JournalQuery | CancelRequest | None:
    """Return a command, a query about one, or a request to cancel one; None for anything else. Raises `Poison`."""
    if is_command(message):
        return decode_command(message)
    if is_query(message):
        return decode_query(message)
    return decode_cancel(message) if is_cancel(message) else None
