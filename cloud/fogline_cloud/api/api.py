"""The API process: builds its parts, connects them, and runs until SIGTERM."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
from starlette.routing import Route

from fogline.errors import Misconfigured
from fogline.message import Message
from fogline.process.files.settings_file import split_endpoint
from fogline.process.files.tls_files import ReadAgain
from fogline.process.loop_calls import call_soon
from fogline.process.monitoring.metrics import Sample, samples_of
from fogline.process.monitoring.metrics_server import MetricsServer
from fogline.process.monitoring.statistics import answer_sigusr1, read_process
from fogline.process.service_manager import watched
from fogline.transport.loopback import is_loopback
from fogline_cloud.access.access_file import Permissions, loosened, read_permissions
from fogline_cloud.access.policy import Policy
from fogline_cloud.api.app import make_app
from fogline_cloud.api.command_index import CommandIndex
from fogline_cloud.api.command_routes import facts_of, take_reply
from fogline_cloud.api.context import ApiContext
from fogline_cloud.api.feed import Feed
from fogline_cloud.api.http_server import HttpServer
from fogline_cloud.api.logins import Logins
from fogline_cloud.api.requests import as_json
from fogline_cloud.commands.client.operator_security import password_security
from fogline_cloud.commands.record import CommandRecord, decode_record
from fogline_cloud.devices.device_table import DeviceTable
from fogline_cloud.devices.record import is_elsewhere
from fogline_cloud.kafka import topics
from fogline_cloud.kafka.clients import KafkaClients
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.consumer_thread import stuck_consumers
from fogline_cloud.kafka.record_tail import RecordTail
from fogline_cloud.parser_kit.deploying import ParserDeployments
from fogline_cloud.settings import CloudSettings

FILES_S = 5.0
"""Interval at which the file of permissions is read again if it has changed."""
STOP_S = 5.0
"""The time that the thread that reads Kafka gets to end. One that waits for Kafka for longer ends with the process."""

Pages = Callable[[CloudSettings, ApiContext], Sequence[Route]]
"""Makes the routes of pages that are served beside the API."""

_log = logging.getLogger("fogline.api")


def no_pages(_settings: CloudSettings, _context: ApiContext) -> Sequence[Route]:
    """Serve the API alone."""
    return ()


class Api:
    """One API process. Call `start`, then `close`, both on the event loop."""

    def __init__(self, settings: CloudSettings, pages: Pages = no_pages) -> None:
        self._settings = settings
        self._clients = KafkaClients(settings.kafka)
        self._loop = asyncio.get_running_loop()
        self._access = _access(settings)
        names = settings.flow.canonical.names
        self._readings = {topics.canonical(settings.tenant), *(topics.canonical_topic(settings.tenant, name) for name in names)}
        self.context = self._make_context()
        app = make_app(self.context, pages(settings, self.context))
        self._server = HttpServer(app, settings.api.tls, settings.api.max_connections, self._on_refused)
        self._metrics: MetricsServer | None = None
        self.metrics_address = ""
        self._files: asyncio.TimerHandle | None = None

    def _make_context(self) -> ApiContext:
        settings = self._settings
        where = settings.operator.bridge or settings.bridge.listen
        host, port = split_endpoint(where, "operator.bridge")
        security = password_security(settings.operator, host)
        listen, _ = split_endpoint(settings.api.listen, "api.listen")
        if not is_loopback(listen) and (settings.api.tls is None or security.tls is None):
            missing = "[api.tls]" if settings.api.tls is None else "[operator.tls], and a bridge with TLS and users"
            raise Misconfigured(f"api.listen = {settings.api.listen!r}: beyond loopback the API needs {missing}")
        access = self._access
        policy = Policy(settings.tenant, settings.shards, None, lambda: access.value if access is not None else None)
        shards, tenant = range(settings.shards), settings.tenant
        partitions = {(topics.commands(tenant), shard): True for shard in shards}
        partitions |= {(topics.devices(tenant), shard): True for shard in shards}
        on_loop = partial(partial, call_soon, self._loop)
        return ApiContext(
            tenant=tenant,
            policy=policy,
            logins=Logins(tenant, host, port, security, self._on_reply),
            commands=CommandIndex(settings.api.max_commands, self._on_command),
            feed=Feed(),
            devices=DeviceTable(),
            deployments=ParserDeployments(settings),
            tail=RecordTail(self._clients, partitions, on_loop(self._on_records), on_loop(self._on_loaded)),
            max_streams=settings.api.max_streams,
        )

    async def start(self) -> tuple[str, int]:
        """Check the topics, begin to read them, and listen. Return host and port. Raises `Misconfigured`."""
        settings = self._settings
        existing = await asyncio.to_thread(self._clients.topics)
        tenant = settings.tenant
        topics.require([topics.commands(tenant), topics.devices(tenant), topics.canonical(tenant)], existing)
        if (found := existing[topics.commands(tenant)]) != settings.shards:
            raise Misconfigured(f"shards = {settings.shards}, but topic {topics.commands(tenant)} has {found} partitions")
        readings = [name for name in self._readings if name in existing]
        self.context.tail.read_too([(name, number) for name in readings for number in range(existing[name])])
        bound = await self._server.start(*split_endpoint(settings.api.listen, "api.listen"))
        if settings.api.metrics is not None:
            self._metrics = MetricsServer(settings.api.metrics, "api.metrics", self._read, lambda: self.context.tail.behind)
            self.metrics_address = await self._metrics.start()
        self.context.tail.start()
        self._read_files()
        return bound

    async def close(self) -> None:
        """Stop listening, end requests that wait with 503, and close all connections."""
        self.context.stopping = True
        self._server.refuse_more()
        self.context.commands.stop()
        self.context.feed.stop()
        await self._server.close()
        self.context.logins.close()
        for close in self.context.closing:
            close()
        if self._files is not None:
            self._files.cancel()
        if self._metrics is not None:
            await self._metrics.close()
        self.context.tail.stop()
        await asyncio.to_thread(self.context.tail.join, STOP_S)

    async def answers(self) -> str:
        """Return which thread is stuck, or an empty text. A thread that waits for Kafka is not."""
        return stuck_consumers()

    def read_files(self, *, at_once: bool = True) -> None:
        """Read the file of permissions again, if it has changed. `at_once`: nobody is writing it any more."""
        if self._access is not None:
            self._access.get(at_once=at_once)

    def _read_files(self) -> None:
        self.read_files(at_once=False)
        self._files = self._loop.call_later(FILES_S, self._read_files)

    def _on_refused(self) -> None:
        self.context.counters.connections_refused += 1

    def _on_reply(self, operator: str, message: Message) -> None:
        take_reply(self.context, operator, message)

    def _on_command(self, record: CommandRecord) -> None:
        if self.context.tail_loaded:
            self.context.feed.put("command", record.device, record.name, as_json(facts_of(record)))

    def _on_records(self, records: list[CommittedRecord]) -> None:
        tenant = self._settings.tenant
        devices = topics.devices(tenant)
        for each in records:
            try:
                if each.topic in self._readings:
                    device = msgspec.json.decode(each.value, type=_Device).device
                    self.context.feed.put("reading", device, "", each.value.replace(b"\n", b" "))
                elif each.topic == devices:
                    if not is_elsewhere(each.key, each.partition, self._settings.shards):
                        self.context.devices.apply_or_log(each.key, each.value)
                elif each.value:
                    self.context.commands.put(decode_record(each.value))
            except Exception as error:  # noqa: BLE001 - one record must not cost those behind it
                _log.warning("%s[%d] at %d is skipped: %s", each.topic, each.partition, each.offset, error)
        self.context.device_change.set()
        self.context.device_change = asyncio.Event()

    def _on_loaded(self) -> None:
        self.context.commands.sort()
        self.context.tail_loaded = True

    def _read(self) -> Iterator[Sample]:
        context = self.context
        yield from read_process()
        yield Sample("fogline_api_connections", self._server.connections)
        yield Sample("fogline_api_streams", context.streams)
        yield Sample("fogline_api_waits", context.commands.waiting)
        yield Sample("fogline_api_users", len(context.logins))
        yield Sample("fogline_api_commands", len(context.commands))
        context.counters.logins_refused = context.logins.refused
        yield from samples_of("api", context.counters)


class _Device(msgspec.Struct):
    device: str


def _access(settings: CloudSettings) -> ReadAgain[Permissions] | None:
    path = settings.bridge.access
    if path is None:
        _log.warning("bridge.access is not set: every user may read about all commands")
        return None
    return ReadAgain(partial(read_permissions, path), [path], loosened)


async def run_api(settings: CloudSettings, on_ready: Callable[[str, int], None], pages: Pages = no_pages) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets host and port. Raises `Misconfigured`."""
    api, stop, loop = Api(settings, pages), asyncio.Event(), asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop.set)
    answer_sigusr1()
    host, port = await api.start()
    loop.add_signal_handler(signal.SIGHUP, api.read_files)
    on_ready(host, port)
    try:
        async with watched(api.answers, lambda: api.context.tail.behind):
            await stop.wait()
        _log.info("stopping")
    finally:
        await api.close()
