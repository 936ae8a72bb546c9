"""Serves the links of gateways: hello, statistics, batches of events (which a shard's thread settles), and the control link."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from fogline.address import Address, Control, HelloAddress, IngestAddress, shown
from fogline.amqp.events import Delivery, Link
from fogline.amqp.outcome import ACCEPTED, DECODE_ERROR, NOT_FOUND, RELEASED, RESOURCE_LIMIT, UNAUTHORIZED, Condition, rejected
from fogline.amqp.scheduler import Share
from fogline.events.codec import MAX_MESSAGE_BYTES, Range, decode_beacon, decode_range
from fogline.events.event import Lane
from fogline.gateway import hello
from fogline.gateway.gateway_statistics import STATISTICS_CONTENT_TYPE, decode_statistics
from fogline.message import Message
from fogline.process.kernel_clock import wall_clock_ms
from fogline.process.loop_calls import call_soon
from fogline.tracing.spans import ExportSpans
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.gateways.copy_numbers import Copy, CopyNumbers
from fogline_cloud.bridge.gateways.fleet import FleetStatistics
from fogline_cloud.bridge.gateways.hello_pacer import RETRY_S, HelloPacer
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.peers.peer import GatewayPeer, LinkHandler, Peer
from fogline_cloud.settings import BridgeSettings
from fogline_cloud.shard.inbox import MarksQuery
from fogline_cloud.shard.work.land_trace import LandTrace
from fogline_cloud.shard.work.submissions import GatewayBatch

INGEST_CREDIT = 16
"""Batches that a gateway may have in flight on one lane."""
HELLO_CREDIT = 4
MAX_UNSETTLED_WELCOMES = 16
"""Welcomes that a gateway may leave unsettled. One connection needs one."""

_log = logging.getLogger("fogline.bridge")


class GatewayHandler(LinkHandler):
    """Serves `hello/`, `ingest/` and `control/`. `fleet` gets what the gateways report.

    `on_welcomed`: a gateway can receive commands. `on_replies` gets each batch of lane `reply`. `find_owner`: `host:port` of
    the other bridge that owns a shard, or "". `export`: takes the spans of landed events.
    """

    def __init__(
        self,
        shards: ShardTable,
        gateways: ConnectedGateways,
        fleet: FleetStatistics,
        settings: BridgeSettings,
        *,
        on_welcomed: Callable[[GatewayPeer], None],
        on_replies: Callable[[Range, Message], None],
        find_owner: Callable[[int], Awaitable[str]],
        export: ExportSpans | None = None,
    ) -> None:
        self._shards = shards
        self._gateways = gateways
        self._on_welcomed = on_welcomed
        self._on_replies = on_replies
        self._find_owner = find_owner
        self._export = export
        self._loop = asyncio.get_running_loop()
        self._redirects: set[asyncio.Task[None]] = set()
        self._fleet = fleet
        self._statistics_s = settings.statistics_s
        self._copies = CopyNumbers()
        self._pacer = HelloPacer(settings.hellos_s, self._loop.time())

    def attach(self, peer: Peer, link: Link, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(peer, GatewayPeer)
        match address:
            case Control():
                peer.control = peer.connection.accept_link(link, share=Share(strict=0))
            case IngestAddress(shard=shard_number) if self._shards.ready(shard_number) is None:
                peer.connection.refuse_link(link, Condition(NOT_FOUND, f"shard {shard_number} is not here at present"))
            case _:
                peer.accept_link(link, address, HELLO_CREDIT if isinstance(address, HelloAddress) else INGEST_CREDIT)

    def received(self, peer: Peer, delivery: Delivery, message: Message, address: Address) -> None:
        """See `LinkHandler`."""
        assert isinstance(peer, GatewayPeer)
        if message.content_type == STATISTICS_CONTENT_TYPE and isinstance(address, HelloAddress):
            statistics = decode_statistics(message.body)
            self._fleet.reported(peer.principal.name, peer.shard_number, statistics)
            peer.settle(delivery, ACCEPTED)
        elif isinstance(address, HelloAddress):
            self._on_hello(peer, delivery, message)
        else:
            self._on_batch(peer, delivery, message)

    # --- hello

    def _on_hello(self, peer: GatewayPeer, delivery: Delivery, message: Message) -> None:
        request = hello.decode_hello(message.body)
        if request.gateway != peer.principal.name:
            peer.settle(delivery, rejected(UNAUTHORIZED, f"{peer.principal} is not {shown(request.gateway)}"))
            return
        peer.settle(delivery, ACCEPTED)
        peer.set_beacon(request.beacon)
        peer.journal, peer.credentials_key = request.journal, request.credentials_key
        shard = self._shards.owned.get(peer.shard_number)
        if request.protocol != hello.PROTOCOL:
            why = f"this bridge speaks protocol {hello.PROTOCOL}, not {request.protocol}"
            self._refuse(peer, message, why, retry_after_s=60.0)
        elif shard is None:
            task = self._loop.create_task(self._redirect(peer, message), name=f"redirect {request.gateway}")
            self._redirects.add(task)
            task.add_done_callback(self._redirects.discard)
        elif not shard.ready:
            self._refuse(peer, message, f"shard {peer.shard_number} is not here at present: {shard.why_not}", RETRY_S)
        elif wait_s := self._pacer.wait_s(self._loop.time()):
            self._refuse(peer, message, "too many gateways connect at once", wait_s)
        else:
            _log.info("gateway %s says hello (%s, %d streams)", request.gateway, request.version, len(request.streams))
            copy = self._copies.judge(request.gateway, request.copy, wall_clock_ms())
            if copy.replaced:
                why = "a copy of its outbox that was restored later has replaced it: it delivers what it has"
                _log.warning("gateway %s connects, but %s", request.gateway, why, extra={"gateway": request.gateway})
            on_marks = partial(call_soon, self._loop, self._welcome, peer, message, copy)
            shard.submit(MarksQuery(request.gateway, [each.stream for each in request.streams], on_marks, request.epoch))

    async def _redirect(self, peer: GatewayPeer, message: Message) -> None:
        owner = await self._find_owner(peer.shard_number)
        why = f"shard {peer.shard_number} is not here: it is {f'at {owner}' if owner else 'another bridge'}"
        self._refuse(peer, message, why, RETRY_S, owner)

    def _refuse(self, peer: GatewayPeer, message: Message, why: str, retry_after_s: float, redirect: str = "") -> None:
        refusal = hello.Welcome(protocol=hello.PROTOCOL, refused=why, retry_after_s=retry_after_s, redirect=redirect)
        self._send(peer, message, refusal)

    def _welcome(self, peer: GatewayPeer, message: Message, copy: Copy, marks: list[hello.Mark]) -> None:
        welcome = hello.Welcome(
            protocol=hello.PROTOCOL,
            shard=peer.shard_number,
            shards=self._shards.count,
            max_message_bytes=MAX_MESSAGE_BYTES,
            marks=marks,
            time_ms=wall_clock_ms(),
            statistics_s=self._statistics_s,
            copy=copy.number,
            replaced=copy.replaced,
        )
        sent = self._send(peer, message, welcome)
        if sent and not copy.replaced and not peer.welcomed and self._gateways.get(peer.principal.name) is peer:
            peer.welcomed = True
            self._fleet.seen(peer.principal.name, peer.shard_number)
            self._on_welcomed(peer)

    def _send(self, peer: GatewayPeer, request: Message, welcome: hello.Welcome) -> bool:
        """Send a reply to hello. Return False if the connection was closed instead."""
        if peer.control is None or peer.control.closed:
            peer.connection.close(Condition(NOT_FOUND, "a gateway attaches to its control address before it says hello"))
            return False
        if peer.unsettled_welcomes >= MAX_UNSETTLED_WELCOMES:
            why = f"{MAX_UNSETTLED_WELCOMES} replies to hello are not settled: a gateway says hello once on a connection"
            peer.connection.close(Condition(RESOURCE_LIMIT, why))
            return False
        peer.unsettled_welcomes += 1
        reply = Message(
            body=hello.encode_hello(welcome),
            content_type=hello.HELLO_CONTENT_TYPE,
            to=request.reply_to,
            correlation_id=request.correlation_id,
        )
        peer.control.send(reply).add_done_callback(peer.on_welcome_settled)
        return True

    # --- batches

    def _on_batch(self, peer: GatewayPeer, delivery: Delivery, message: Message) -> None:
        span = decode_range(message)
        peer.set_beacon(decode_beacon(message))
        shard = self._shards.ready(peer.shard_number)
        lane = str(delivery.link.properties.get("lane", delivery.link.name))
        if span.gateway != peer.principal.name:
            why = f"{peer.principal} may not send for gateway {shown(span.gateway)}"
            peer.settle(delivery, rejected(UNAUTHORIZED, why))
        elif span.lane != lane:
            peer.settle(delivery, rejected(DECODE_ERROR, f"a batch of lane {span.lane} on a link for {lane!s}"))
        elif shard is None:
            peer.settle(delivery, RELEASED)
        else:
            peer.count(events=span.last - span.first + 1, size_bytes=len(message.body))
            peer.queue(delivery, message)
            self._fleet.seen(span.gateway, peer.shard_number)
            trace = LandTrace(self._export) if self._export is not None else None
            shard.submit(GatewayBatch(span, message, partial(call_soon, self._loop, peer.settle, delivery), trace))
            if span.lane is Lane.REPLY:
                self._on_replies(span, message)
