"""The bridge process: builds the listener, the handlers and the shards, and connects them."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from fogline.errors import Misconfigured
from fogline.process.files.settings_file import require_loopback, split_endpoint
from fogline.process.loop_calls import call_soon
from fogline.process.monitoring.metrics import Sample
from fogline.process.monitoring.metrics_server import MetricsServer
from fogline.process.monitoring.statistics import answer_sigusr1
from fogline.process.service_manager import watched
from fogline.tracing.activation import tracing
from fogline.tracing.spans import ExportSpans
from fogline_cloud.bridge.commands.command_key import command_key
from fogline_cloud.bridge.commands.command_sender import CommandSender
from fogline_cloud.bridge.commands.command_table import CommandTable
from fogline_cloud.bridge.commands.desired_states import DesiredStates
from fogline_cloud.bridge.commands.devices import DeviceHandler, Devices
from fogline_cloud.bridge.commands.early_verdicts import EarlyVerdicts
from fogline_cloud.bridge.commands.kafka_commands import KafkaCommands
from fogline_cloud.bridge.commands.lists import ListHandler
from fogline_cloud.bridge.commands.notices import NoticeHandler
from fogline_cloud.bridge.commands.operators import OperatorHandler
from fogline_cloud.bridge.commands.silent_devices import SilentDevices
from fogline_cloud.bridge.consumers.client_events import ClientEventHandler
from fogline_cloud.bridge.consumers.consumers import ConsumerHandler
from fogline_cloud.bridge.credentials.device_keys import DeviceKeyring
from fogline_cloud.bridge.door.authentication import Authentication
from fogline_cloud.bridge.door.listener import LinkHandlers, Listener
from fogline_cloud.bridge.door.revocation_feed import RevocationFeed
from fogline_cloud.bridge.gateways.connected_gateways import ConnectedGateways
from fogline_cloud.bridge.gateways.enrolment import EnrolmentHandler
from fogline_cloud.bridge.gateways.fleet import FleetStatistics
from fogline_cloud.bridge.gateways.gateways import GatewayHandler
from fogline_cloud.bridge.group.route_feed import route_feed
from fogline_cloud.bridge.group.shard_assignment import ShardAssignment, ShardDirectory
from fogline_cloud.bridge.group.shard_table import ShardTable
from fogline_cloud.bridge.metrics import check_bridge, read_bridge
from fogline_cloud.bridge.operator_files import open_access, open_signer, open_types, policy_of
from fogline_cloud.bridge.peers.audit_trail import AuditTrail
from fogline_cloud.bridge.peers.forwarding import Forwarder
from fogline_cloud.bridge.peers.peer import GatewayPeer
from fogline_cloud.bridge.via.vias import Vias
from fogline_cloud.commands.command_id import CommandIds
from fogline_cloud.commands.routes import Routes
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.consumer_thread import stuck_consumers
from fogline_cloud.settings import BridgeSettings, CloudSettings
from fogline_cloud.shard.checkpoint import Layout
from fogline_cloud.shard.producer import ShardProducer
from fogline_cloud.shard.shard import Shard, ShardListeners
from fogline_cloud.shard.shard_writer import ShardWriter
from fogline_cloud.shard.sightings import Sightings
from fogline_cloud.shard.topic_admin import check_topics

STOP_S = 5.0
"""The time that threads get to end. A thread that waits for Kafka for longer ends with the process."""

FILES_S = 5.0
"""Interval at which changed files are read again, and open connections compared with the list of revoked certificates."""

_log = logging.getLogger("fogline.bridge")


class Bridge:
    """One bridge process. Call `start`, then `close`, both on the event loop. `export`: takes the spans of landed events."""

    def __init__(self, settings: CloudSettings, export: ExportSpans | None = None) -> None:
        self.shards = ShardTable(settings.shards)
        self.gateways = ConnectedGateways()
        self.fleet = FleetStatistics()
        self._loop = asyncio.get_running_loop()
        self.outdated: asyncio.Future[str] = self._loop.create_future()
        """Done, with the reason, once the number of shards has changed: this process must end."""
        self.listener: Listener | None = None
        self.metrics_address = ""
        self.websocket_address: tuple[str, int] | None = None
        self._settings = settings
        self._export = export
        self._clients = KafkaClients(settings.kafka)
        self._routes = Routes()
        self._on_layout = partial(call_soon, self._loop, _set, self.outdated)
        self._route_feed = route_feed(self._clients, settings.tenant, settings.shards, self._routes, self._on_layout)
        self._signer = open_signer(settings.commands)
        self._table = CommandTable(self.shards, CommandSender(self.gateways, self._signer), settings.commands.grace_s)
        self._ids: CommandIds | None = None
        self._assignment: ShardAssignment | None = None
        self.problem = lambda: check_bridge(self.shards, self._assignment)
        """Returns why this bridge accepts no batches of some gateways, or an empty text."""
        self._directory: ShardDirectory | None = None
        self._closing = False
        self._audit = AuditTrail(self.shards)
        self._access = open_access(settings.bridge)
        self._policy = policy_of(settings, self._access)
        self._vias: Vias | None = None
        self._types = open_types(settings.devices)
        self._devices = Devices(self._clients, settings, self.shards, types=lambda: self._types.value if self._types else {})
        self.silent = SilentDevices(self._devices, settings)
        self._keys = DeviceKeyring(self._clients, settings, self.shards, self._policy.may_speak_for, self._signer)
        self._enrolment = EnrolmentHandler(settings, self._audit)
        self._desired: DesiredStates | None = None
        self._kafka_commands: KafkaCommands | None = None
        self._consumers = ConsumerHandler(self._clients, self._policy, self._audit, settings.bridge.max_consumers)
        self._lists = ListHandler(self._clients, self._devices, self._keys, self._policy, self._audit)
        self._feed: RevocationFeed | None = None
        self._files: asyncio.TimerHandle | None = None
        self._metrics: MetricsServer | None = None
        self._forwarder = Forwarder(settings.bridge, self.shards, self._find_owners)

    async def start(self) -> tuple[str, int]:
        """Check the topics, listen, and join the group of bridges. Return host and port. Raises `Misconfigured`."""
        settings = self._settings
        place, websocket = _place(settings.bridge, settings.bridge.listen, "bridge.listen"), None
        if (found := settings.bridge.websocket) is not None:
            websocket = _place(settings.bridge, found, "bridge.websocket")
        authentication = Authentication(settings)
        problems = await asyncio.to_thread(check_topics, self._clients, settings)
        if problems:
            raise Misconfigured(problems[0])
        self._ids = CommandIds(await asyncio.to_thread(command_key, self._clients, settings.tenant))
        self.listener = self._make_listener(self._ids, authentication)
        self._devices.start()
        self._keys.start()
        self._route_feed.start()
        bound = await self.listener.start(*place)
        if websocket is not None:
            self.websocket_address = await self.listener.start(*websocket, websocket=True)
        if self._vias is not None:
            self._vias.start()
        if authentication.revoked is not None and settings.bridge.crl is not None and settings.bridge.tls is not None:
            paths = settings.bridge.crl, settings.bridge.tls.ca
            self._feed = RevocationFeed(self._clients, settings.tenant, authentication.revoked, *paths)
        self._keep_files()
        if settings.bridge.metrics is not None:
            read = partial(read_bridge, self.listener, self.gateways, self._table, self.shards, self.fleet, vias=self._vias)
            parts = (read, self.silent.read, self._keys.read)
            self._metrics = MetricsServer(settings.bridge.metrics, "bridge.metrics", partial(_all_of, parts), self.problem)
            self.metrics_address = await self._metrics.start()
        self._join("{}:{}".format(*bound))
        if self._kafka_commands is not None:
            self._kafka_commands.start()
        return bound

    def _make_listener(self, ids: CommandIds, authentication: Authentication) -> Listener:
        settings, policy = self._settings, self._policy
        gateways = GatewayHandler(
            self.shards,
            self.gateways,
            self.fleet,
            settings.bridge,
            on_welcomed=self._on_welcomed,
            on_replies=EarlyVerdicts(self._table, settings.tenant, policy.may_speak_for).received,
            find_owner=self._find_owner,
            export=self._export,
        )
        operators = OperatorHandler(
            self.shards,
            self._routes,
            self._table,
            settings=settings.commands,
            ids=ids,
            policy=policy,
            refusal=self._devices.refusal,
            forwarder=self._forwarder,
        )
        self._desired = DesiredStates(
            self._devices,
            self.shards,
            self._table,
            operators,
            ids=ids,
            tenant=settings.tenant,
            ttl_ms=int(settings.commands.max_ttl_s * 1000),
            gateway_of=operators.gateway_of,
        )
        if settings.commands.kafka:
            self._kafka_commands = KafkaCommands(self._clients, settings, self.shards, operators, self._audit)
        self._devices.on_change.append(self._desired.changed)
        self._desired.start()
        events = ClientEventHandler(self.shards, policy, self._forwarder, self._export)
        devices = DeviceHandler(self._devices, self._keys, policy, self.shards, self._forwarder)
        handlers = LinkHandlers(
            gateways, events, operators, self._enrolment, devices, self._consumers, self._lists, NoticeHandler(self._audit)
        )
        listener = Listener(settings.bridge, authentication, policy, self.gateways, handlers, audit=self._audit)
        if settings.bridge.via:
            door = listener.entrance
            self._vias = Vias(settings, self.shards, authentication, door, handler=gateways, resume=self._on_welcomed)
        return listener

    async def answers(self) -> str:
        """Return which thread has ended or is stuck, or an empty text. A shard that waits for Kafka runs."""
        ended = [f"the thread of shard {shard.number} has ended" for shard in self.shards if not shard.alive]
        return "; ".join(ended) or stuck_consumers()

    def read_again(self, *, at_once: bool = True) -> None:
        """Read the files that have changed: who may do what, who may connect no longer, and what devices take.

        `at_once`: nobody is writing the files any more.
        """
        assert self.listener is not None
        if self._access is not None:
            former = self._access.value
            if self._access.get(at_once=at_once) is not former:
                self.listener.withdrawals.take_permissions()
                self._keys.distribution.permissions_changed()
                self._audit.note(None, "ACCESS CHANGED", f"{self._settings.bridge.access} was read again")
        if self._types is not None:
            self._types.get(at_once=at_once)
        self.listener.withdrawals.close_ended()

    def _keep_files(self) -> None:
        self._files = self._loop.call_later(FILES_S, self._keep_files)  # first: an error must not end the looks
        self.read_again(at_once=False)
        self._enrolment.keep_list()
        self._keys.distribution.sweep()
        if self._feed is not None:
            self._feed.exchange()

    def _join(self, bound: str) -> None:
        settings = self._settings
        group, own = topics.bridge_group(settings.tenant), f"{settings.bridge.name}@{settings.bridge.advertised or bound}"
        self._directory = ShardDirectory(self._clients, group, own)
        self._assignment = ShardAssignment(
            partial(self._clients.member, group, settings.bridge.name, own),
            topics.telemetry(settings.tenant),
            gained=partial(call_soon, self._loop, self._gain),
            lost=partial(call_soon, self._loop, self._lose),
        )
        self._assignment.start()

    async def _find_owner(self, shard_number: int) -> str:
        return await self._directory.find(shard_number) if self._directory is not None else ""

    async def _find_owners(self) -> dict[int, str]:
        return await self._directory.owners() if self._directory is not None else {}

    async def close(self) -> None:
        """Stop serving, then leave the group. Open transactions are aborted, and the gateways send their batches again."""
        if self._metrics is not None:
            await self._metrics.close()
        self.silent.close()
        if self._files is not None:
            self._files.cancel()
        await _close_doors(self._feed, self._vias, self.listener)
        self._forwarder.close()
        await self._consumers.close()
        await self._lists.close()
        if self._kafka_commands is not None:
            await self._kafka_commands.close()
        self._table.close()
        self._devices.stop()
        if self._desired is not None:
            self._desired.stop()
        self._route_feed.stop()
        self._closing = True
        shards = list(self.shards)  # leaving the group empties the table, but the threads still run
        for shard in shards:
            shard.stop()
        if self._assignment is not None:
            self._assignment.stop()
            await asyncio.to_thread(self._assignment.join, STOP_S)
        deadline = self._loop.time() + STOP_S
        await self._keys.close(STOP_S)
        await asyncio.to_thread(self._devices.join, STOP_S)
        await asyncio.to_thread(self._route_feed.join, STOP_S)
        for shard in shards:
            await asyncio.to_thread(shard.join, max(0.0, deadline - self._loop.time()))

    def _gain(self, shard_number: int) -> None:
        self._lose(shard_number)
        if self._closing or self._ids is None or shard_number >= self._settings.shards:  # a partition that was added later
            return
        shard = self.shards.owned[shard_number] = Shard(
            shard_number,
            partial(self._make_writer, shard_number),
            self._settings.bridge,
            ShardListeners(
                partial(call_soon, self._loop, self._on_changed),
                self._table.learn,
                partial(call_soon, self._loop, self.fleet.recall, shard_number),
                self._on_layout,
            ),
            routes=self._routes,
            issued=self._ids.issued,
            may_speak_for=self._policy.may_speak_for,
            make_sightings=partial(Sightings, self._devices.table, self._settings.devices, self.silent.rules.lanes),
        )
        shard.start()

    def _make_writer(self, shard_number: int) -> ShardWriter:
        producer = ShardProducer(self._clients, self._settings.tenant, shard_number)
        return ShardWriter(self._clients, producer, Layout(self._settings.shards))

    def _lose(self, shard_number: int) -> None:
        if (shard := self.shards.owned.pop(shard_number, None)) is not None:
            shard.stop()
            self.gateways.close_shard(shard_number, f"shard {shard_number} moved to another bridge")
            _serve(self._vias)

    def _on_welcomed(self, peer: GatewayPeer) -> None:
        self._table.resume(peer.principal.name)
        self._keys.distribution.welcomed(peer)

    def _on_changed(self, shard: Shard) -> None:
        if not shard.ready and self.shards.owned.get(shard.number) is shard:
            self.gateways.close_shard(shard.number, f"shard {shard.number}: {shard.why_not}")
        _serve(self._vias)


def _all_of(parts: Iterable[Callable[[], Iterable[Sample]]]) -> Iterator[Sample]:
    for read in parts:
        yield from read()


def _serve(vias: Vias | None) -> None:
    if vias is not None:
        vias.serve()


async def _close_doors(feed: RevocationFeed | None, vias: Vias | None, listener: Listener | None) -> None:
    if feed is not None:
        feed.close()
    if vias is not None:  # first: its gateways are among the listener's peers
        await vias.close()
    if listener is not None:
        await listener.close()


def _set(outdated: "asyncio.Future[str]", why: str) -> None:
    if not outdated.done():
        outdated.set_result(why)


async def run_bridge(settings: CloudSettings, on_ready: Callable[[str, int], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets host and port. Raises `Misconfigured`."""
    instance = settings.bridge.name
    with tracing(settings.tracing, "fogline-bridge", tenant=settings.tenant, instance=instance) as export:
        await _run(Bridge(settings, export), on_ready)


async def _run(bridge: Bridge, on_ready: Callable[[str, int], None]) -> None:
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    answer_sigusr1()
    host, port = await bridge.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, bridge.read_again)
    on_ready(host, port)
    try:
        async with watched(bridge.answers, bridge.problem):
            bridge.outdated.add_done_callback(lambda _: stop.set())
            await stop.wait()
        if bridge.outdated.done():
            raise Misconfigured(bridge.outdated.result())
        _log.info("stopping")
    finally:
        await bridge.close()


def _place(bridge: BridgeSettings, endpoint: str, key: str) -> tuple[str, int]:
    """Return host and port to listen on. Raises `Misconfigured`, which names `key`."""
    host, port = split_endpoint(endpoint, key)
    if bridge.tls is None:
        require_loopback(host, key)
    return host, port
