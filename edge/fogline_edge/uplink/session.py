"""One connection to the bridge, from hello to its end."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

from fogline import address, hello
from fogline.address import shown
from fogline.amqp.driver import Connection, connect
from fogline.amqp.engine import Engine
from fogline.amqp.events import Delivery, Link, Peer
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, NOT_ALLOWED, Condition, Outcome, rejected
from fogline.amqp.scheduler import Share
from fogline.amqp.wire import decode
from fogline.command import Command, JournalQuery, decode_command, decode_query, is_command, is_query
from fogline.errors import Misconfigured, Poison, SlowDown, Unreachable
from fogline.message import Message, Property
from fogline.rates import Bucket
from fogline.settings import require_loopback, split_endpoint
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.work import StreamView
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.lanes import Lanes
from fogline_edge.uplink.pump import Pump

HELLO_S = 30.0
"""How long the bridge may take to answer: it may have to take the shard first."""
PROGRESS_S = 30.0
"""With something on its way and no settlement for so long, the connection is given up."""

CONTROL_SHARE = Share(strict=0)
CONTROL_CREDIT = 32
"""Commands that the bridge may have on their way."""

OnCommand = Callable[[Command | JournalQuery, Callable[[Outcome], None]], None]
"""Takes a command, or a question about one; its second argument is to be called once with the outcome."""

_VERSION = version("fogline-edge")  # to look it up reads the disk, and leaves a list of all packages in a reference cycle
_log = logging.getLogger("fogline.uplink")
T = TypeVar("T")


class Redirect(SlowDown):
    """Another bridge has this gateway's shard: `where` is its `host:port`."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what, retry_after_s=0.0)
        self.where = where


class Session:
    """Serves one connection, to `bridge` (`host:port`).

    `run` never returns: it raises `Unreachable` when the connection is over, `SlowDown` when the bridge asked to come
    back later, `Redirect` when it names another one (all possibly within exception groups).
    """

    def __init__(
        self, outbox: Outbox, settings: UplinkSettings, on_command: OnCommand, bridge: str, budget: Bucket | None = None
    ) -> None:
        self._bridge = bridge
        self._budget = budget
        self.welcomed = False
        self._on_command = on_command
        self._outbox = outbox
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._welcome: asyncio.Future[hello.Welcome] = self._loop.create_future()
        self._over: asyncio.Future[str] = self._loop.create_future()
        self._question = uuid.uuid4()
        self._pumps: dict[str, Pump] = {}
        self._served: set[str] = set()
        self._lanes: Lanes | None = None
        self._new_rows = asyncio.Event()

    async def run(self) -> None:
        """Connect, say hello, pump every stream."""
        host, port = split_endpoint(self._bridge, "uplink.bridge")
        properties: dict[str, Property] = {
            "tenant": self._outbox.tenant,
            "product": hello.PRODUCT,
            "version": _VERSION,
        }
        engine = Engine(self._outbox.gateway, hostname=host, properties=properties)
        connection = await connect(host, port, engine, self)
        try:
            await self._until_over(self._opened, HELLO_S)
            welcome = await self._say_hello(connection)
            self._compare_clocks(welcome)
            await self._reconcile(welcome)
            target = str(address.Ingest(self._outbox.tenant, welcome.shard))
            lanes = self._lanes = Lanes(connection, target)
            self.welcomed = True
            self._outbox.on_commit = self._on_commit
            await self._pump(lanes)
        finally:
            self._outbox.on_commit = lambda: None
            connection.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await asyncio.shield(self._over)
            connection.abort()

    async def _say_hello(self, connection: Connection) -> hello.Welcome:
        with contextlib.suppress(Unreachable):  # no room for another stream: all goes in its order
            await self._outbox.part(self._settings.newest_first, self._settings.backfill_events)
        control = connection.open_session()
        here = address.Control(self._outbox.tenant, self._outbox.gateway)
        connection.open_receiver(control, "control", str(here), credit=CONTROL_CREDIT)
        sender = connection.open_sender(control, "hello", str(address.Hello(self._outbox.tenant)), CONTROL_SHARE, {})
        streams = [hello.OpenStream(each.stream, each.lane) for each in await self._outbox.streams()]
        question = hello.Hello(
            protocol=hello.PROTOCOL,
            version=_VERSION,
            gateway=self._outbox.gateway,
            beacon=self._outbox.clock.beacon(),
            streams=streams,
        )
        message = Message(
            body=hello.encode_hello(question),
            content_type=hello.HELLO_CONTENT_TYPE,
            reply_to=str(here),
            correlation_id=self._question,
        )
        sender.send(message)
        welcome = await self._until_over(self._welcome, HELLO_S)
        if welcome.redirect:
            raise Redirect(welcome.refused, _checked(welcome.redirect))
        if welcome.refused:
            raise SlowDown(f"the bridge refuses: {welcome.refused}", retry_after_s=welcome.retry_after_s)
        return welcome

    def _compare_clocks(self, welcome: hello.Welcome) -> None:
        """The bridge's time is evidence that this machine's clock is right, or a reason to look at both."""
        if welcome.time_ms and not self._outbox.clock.compare(welcome.time_ms * 1_000_000):
            differ_s = self._outbox.clock.time_ns() // 1_000_000_000 - welcome.time_ms // 1000
            _log.warning(
                "this machine's clock is %+d s from the bridge's: check that both synchronize (timedatectl). Until this one"
                " is known to be right, events are marked `unsynced`",
                differ_s,
            )

    async def _reconcile(self, welcome: hello.Welcome) -> None:
        """Open new streams where the numbering cannot be trusted."""
        for mark in welcome.marks:
            own = await self._outbox.own(mark.stream, mark.chain_sequence)
            if own is None:
                _log.warning("the bridge speaks of stream %s, which is not in this outbox", shown(mark.stream))
                continue
            verdict = hello.resume(own, mark)
            if isinstance(verdict, hello.Reopen):
                await self._outbox.reopen(mark.stream, own.settled, verdict.why)
            elif verdict.settled:
                self._outbox.settle(mark.stream, verdict.settled)

    async def _pump(self, lanes: Lanes) -> None:
        """One task a stream, more as streams are opened, until the first of them or the connection fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._raise_when_over(), name="uplink-over")
            group.create_task(self._watch_progress(), name="uplink-progress")
            self._new_rows.set()
            while True:
                await self._new_rows.wait()
                self._new_rows.clear()
                for stream in await self._outbox.streams():
                    if stream.stream not in self._served:
                        self._served.add(stream.stream)
                        group.create_task(self._serve(lanes, stream), name=f"uplink-{stream.lane}-{stream.stream}")

    async def _serve(self, lanes: Lanes, stream: StreamView) -> None:
        """One stream, over one link after the other."""
        behind = not stream.open
        while True:
            sender = await lanes.sender(stream.lane, behind=behind)
            pump = self._pumps[stream.stream] = Pump(self._outbox, sender, stream, self._settings, self._budget)
            try:
                await pump.run()
            except Unreachable:
                if self._over.done() or not sender.closed:
                    raise
            views = {each.stream: each for each in await self._outbox.streams()}
            if stream.stream not in views:
                return
            stream = views[stream.stream]

    def _on_commit(self) -> None:
        for pump in self._pumps.values():
            pump.wake()
        self._new_rows.set()

    async def _raise_when_over(self) -> None:
        raise Unreachable(await asyncio.shield(self._over))  # it is waited for again when something else failed first

    async def _watch_progress(self) -> None:
        """TCP may live while nothing moves: watch settlements themselves."""
        while True:
            watched = {name: (pump, pump.progressed, pump.sender.queued) for name, pump in self._pumps.items() if pump.waiting}
            await asyncio.sleep(PROGRESS_S)
            busy = any(pump.progressed != progressed for pump, progressed, _ in watched.values())
            for name, (pump, progressed, queued) in watched.items():
                if busy and queued:
                    continue  # on a slow line, a lane with a small share may wait long for its turn
                stuck = pump.waiting and pump.progressed == progressed and pump.sender.credit
                if stuck and self._pumps[name] is pump:
                    raise Unreachable(f"nothing of stream {name} was settled for {PROGRESS_S:.0f} s")

    async def _until_over(self, future: "asyncio.Future[T]", limit_s: float) -> T:
        waited: list[asyncio.Future[Any]] = [future, self._over]
        done, _ = await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if future in done:
            return future.result()
        raise Unreachable(self._over.result() if done else f"the bridge did not answer in {limit_s:.0f} s")

    # --- Handler of the connection

    def opened(self, connection: Connection, peer: Peer) -> None:  # noqa: ARG002 - the handler's interface
        """The bridge answered."""
        if not self._opened.done():
            self._opened.set_result(None)

    def link_requested(self, connection: Connection, link: Link) -> None:
        """The bridge opens no links."""
        connection.refuse_link(link, Condition(NOT_ALLOWED, "a gateway serves no links"))

    def link_closed(self, connection: Connection, link: Link, condition: Condition | None) -> None:
        """A lane is attached again; without its other links a connection is not whole: start again."""
        served = any(pump.progressed for pump in self._pumps.values() if pump.sender.link is link)
        if self._lanes is None or not self._lanes.detached(link, condition, served=served):
            self.closed(connection, f"link {link.name} was closed: {condition or 'no reason given'}")

    def received(self, connection: Connection, delivery: Delivery, data: bytes) -> None:
        """The answer to hello, a command, or a question about one."""

        def settle(outcome: Outcome) -> None:
            connection.settle(delivery, outcome)
            connection.grant(delivery.link, 1)

        try:
            message = decode(data)
            if is_command(message):
                self._on_command(decode_command(message), settle)
                return
            if is_query(message):
                self._on_command(decode_query(message), settle)
                return
            welcome = hello.decode_welcome(message.body)
        except Poison as error:
            settle(rejected(DECODE_ERROR, str(error)))
            return
        settle(ACCEPTED)
        if message.correlation_id == self._question and not self._welcome.done():
            self._welcome.set_result(welcome)

    def closed(self, connection: Connection, why: str) -> None:  # noqa: ARG002 - the handler's interface
        """It is over."""
        if not self._over.done():
            self._over.set_result(why)


def _checked(where: str) -> str:
    """An address that a bridge names, if this gateway would go there. Raises `Unreachable`."""
    try:
        require_loopback(split_endpoint(where, "redirect")[0], "redirect")
    except Misconfigured as error:
        raise Unreachable(f"the bridge sends on to where this gateway does not go: {error}") from None
    return where
