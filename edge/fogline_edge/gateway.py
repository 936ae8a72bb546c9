"""The composition root of the gateway: it creates every part and connects them."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from fogline.commands.signature import TrustedKeys, read_keys
from fogline.errors import FoglineError, Misconfigured
from fogline.gateway.message_signature import GatewayName
from fogline.process import service_manager
from fogline.process.cancellation import end_tasks
from fogline.process.monitoring.statistics import answer_sigusr1
from fogline.process.service_manager import watched
from fogline.tracing.activation import tracing
from fogline.tracing.spans import ExportSpans
from fogline.transport.byte_budget import ByteBudget
from fogline_edge.adapters.bodies.uploads import BodyUploads
from fogline_edge.adapters.mqtt.server.listener import MqttListener, make_rates
from fogline_edge.ble_settings import BleSettings
from fogline_edge.credentials.credential_file import CredentialFile
from fogline_edge.credentials.credential_updates import CredentialUpdates
from fogline_edge.downlink.device_queues import THE_GATEWAY
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.downlink.history_reader import HistoryReader
from fogline_edge.machine.process_end import STOPPED_TEXT, EndCause
from fogline_edge.machine.run_record import RunRecord
from fogline_edge.machine.watchman import MemoryExceeded, Watchman
from fogline_edge.operate.final_delivery import deliver_the_rest
from fogline_edge.operate.metrics import AdapterCounters, read_gateway
from fogline_edge.operate.renewal import renew_in_time
from fogline_edge.operate.settings_check import check, require_bluetooth
from fogline_edge.operate.statistics import StatisticsReader
from fogline_edge.outbox.file.data_folder import FILE
from fogline_edge.outbox.file.free_space import NoRoom
from fogline_edge.outbox.file.full_record import FullCause, FullRecord
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.rules.private import PrivateRules
from fogline_edge.settings import EdgeSettings
from fogline_edge.uplink.uplink import Uplink

if TYPE_CHECKING:
    from fogline_edge.adapters.ble.adapter import BleAdapter
    from fogline_edge.adapters.coap.listener import CoapListener
    from fogline_edge.adapters.http.listener import HttpListener
    from fogline_edge.adapters.mqtt_client.client import MqttClient

    _AnyAdapter = MqttListener | CoapListener | HttpListener | MqttClient | BleAdapter

ROOM_S = 30.0
"""Interval at which a gateway that finds the disk full at its start tries again, in seconds."""

_log = logging.getLogger("fogline.gateway")


async def run_gateway(
    settings: EdgeSettings, on_ready: Callable[[dict[str, str]], None], config: Path, max_memory_mib: int = 0
) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the addresses of the listeners. `config`: the settings file.

    Raises `Misconfigured` if an operator must change something first, or if the outbox's file fails, and `MemoryExceeded` above
    `max_memory_mib` (0: no bound). No event is acknowledged after that, and a restart continues from the durable state.
    """
    check(settings, config)
    _spare_collections()
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    answer_sigusr1()
    with tracing(settings.tracing, "fogline-edge", tenant=settings.tenant, instance=settings.gateway) as export:
        await _run(settings, stop, on_ready, config, max_memory_mib=max_memory_mib, export=export)


async def _run(
    settings: EdgeSettings,
    stop: asyncio.Event,
    on_ready: Callable[[dict[str, str]], None],
    config: Path,
    *,
    max_memory_mib: int,
    export: ExportSpans | None,
) -> None:
    outbox = await _open_outbox(settings, stop, export)
    if outbox is None:
        return
    try:
        with _recorded(settings, outbox) as record:
            watchman = Watchman(record, outbox.clock, max_memory_mib)
            if outbox.copy.replaced.is_set():
                on_ready({})
            else:
                await _serve_devices(settings, outbox, stop, on_ready, config, watchman=watchman, export=export)
            if outbox.copy.replaced.is_set() and not stop.is_set():
                async with watched(outbox.answers, outbox.why_full):
                    await deliver_the_rest(outbox, settings.uplink, stop)
    finally:
        await outbox.close()


@contextlib.contextmanager
def _recorded(settings: EdgeSettings, outbox: Outbox) -> Iterator[RunRecord]:
    """Log how the last run ended, and note how this one ends."""
    record = RunRecord(Path(settings.data), outbox.clock)
    record.log_last_end()
    try:
        yield record
    except MemoryExceeded as error:
        record.leave(EndCause.MEMORY, f"it left by itself: {error}")
        raise
    except FoglineError as error:
        record.leave(EndCause.ERROR, f"it left by itself: {error}")
        raise
    else:
        record.leave(EndCause.STOPPED, STOPPED_TEXT)


async def _serve_devices(
    settings: EdgeSettings,
    outbox: Outbox,
    stop: asyncio.Event,
    on_ready: Callable[[dict[str, str]], None],
    config: Path,
    *,
    watchman: Watchman,
    export: ExportSpans | None,
) -> None:
    """Serve until `stop`, or until a restored copy has replaced this gateway. Raises `Misconfigured`, `MemoryExceeded`."""
    keys = read_keys(settings.commands.keys, "commands.keys")
    downlink = Downlink(outbox, keys)
    await downlink.start()
    async with contextlib.AsyncExitStack() as open_adapters:
        open_adapters.callback(downlink.close)
        _answer_for_itself(settings, downlink, open_adapters)
        credentials = await _open_credentials(settings, keys, open_adapters)
        adapters = await _open_adapters(settings, outbox, downlink, credentials, open_adapters)
        statistics = StatisticsReader(settings, downlink.counters, outbox.clock)
        on_state = watchman.record.note_uplink
        uplink = Uplink(
            outbox,
            settings.uplink,
            downlink.received,
            statistics=statistics.read,
            export=export,
            on_state=on_state,
            credentials=credentials,
        )
        addresses = {name: address for each in adapters for name, address in each.addresses.items()}
        if settings.metrics is not None:
            addresses["metrics"] = await _serve_metrics(settings, outbox, uplink, downlink, adapters, stack=open_adapters)
        on_ready(addresses)
        async with _renewing(settings, config), watched(outbox.answers, outbox.why_full):
            await _serve(uplink, outbox, stop, watchman)


def _answer_for_itself(settings: EdgeSettings, downlink: Downlink, stack: contextlib.AsyncExitStack) -> None:
    """Take the commands that the gateway executes itself."""
    keeps = any(each.keep_days is not None for each in settings.rules.reduce)
    reader = HistoryReader(downlink, Path(settings.data), keeps=keeps)
    downlink.reachable(THE_GATEWAY, reader)
    stack.push_async_callback(reader.close)


async def _open_credentials(
    settings: EdgeSettings, keys: TrustedKeys, stack: contextlib.AsyncExitStack
) -> CredentialUpdates | None:
    """Read the keys of devices, if an adapter needs them. Raises `Misconfigured`."""
    if settings.coap is None:
        return None
    file = CredentialFile(Path(settings.data), f"{settings.tenant}/{settings.gateway}")
    updates = CredentialUpdates(file.read(), file, GatewayName(settings.tenant, settings.gateway), keys)
    await stack.enter_async_context(updates.running())
    return updates


@contextlib.asynccontextmanager
async def _renewing(settings: EdgeSettings, config: Path) -> AsyncIterator[None]:
    """Renew the certificate in time, if the settings say so."""
    tls = settings.uplink.tls
    if not settings.uplink.renew or tls is None or tls.certificate is None:
        yield
        return
    task = asyncio.create_task(renew_in_time(tls.certificate, config), name="renewal")
    try:
        yield
    finally:
        await end_tasks(task)


async def _open_outbox(settings: EdgeSettings, stop: asyncio.Event, export: ExportSpans | None = None) -> Outbox | None:
    """Open the outbox, as soon as the disk has room for it. Returns None if `stop` comes first. Raises `Misconfigured`."""
    file = Path(settings.data) / FILE
    while not stop.is_set():
        try:
            return Outbox.open(settings, export=export)
        except NoRoom as error:
            if not file.exists() or not file.stat().st_size:
                raise  # at the very first start an operator reads the message
            why = FullRecord(file.parent, settings.outbox.max_bytes).begin(FullCause.DISK)
            _log.error("%s (retrying every %.0f s): %s", error, ROOM_S, why, extra={"reason": FullCause.DISK.value})
            service_manager.tell(f"EXTEND_TIMEOUT_USEC={round(2e6 * ROOM_S)}")
            service_manager.tell_status(why)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOM_S):
                await stop.wait()
    return None


class _Adapter(NamedTuple):
    """One open adapter. `addresses`: host and port of each listening socket, by name."""

    counters: list[AdapterCounters]
    addresses: Mapping[str, str] = MappingProxyType({})


async def _open_adapters(
    settings: EdgeSettings,
    outbox: Outbox,
    downlink: Downlink,
    credentials: CredentialUpdates | None,
    stack: contextlib.AsyncExitStack,
) -> list[_Adapter]:
    async def start(name: str, adapter: "_AnyAdapter") -> None:
        stack.push_async_callback(_end, name, adapter)
        await adapter.start()

    bodies = BodyUploads(outbox.port, settings.bodies, settings.outbox.max_bytes, PrivateRules(settings.rules.private).names)
    bodies.end_former()
    adapters = [_Adapter([AdapterCounters("bodies", bodies.counters)])]
    budget = ByteBudget()
    if settings.mqtt is not None:
        rates = make_rates(settings.limits)
        await start("mqtt", mqtt := MqttListener(outbox.port, settings.mqtt, downlink, rates, budget, bodies=bodies))
        addresses = {name: "{}:{}".format(*address) for name, address in mqtt.addresses.items()}
        adapters.append(_Adapter([AdapterCounters("mqtt", mqtt.counters)], addresses))
    if settings.coap is not None:
        from fogline_edge.adapters.coap.listener import CoapListener  # noqa: PLC0415 - aiocoap costs 3 MB, and not all need it

        store = credentials.store if credentials is not None else None
        await start("coap", coap := CoapListener(outbox.port, settings.coap, downlink, budget, store, bodies=bodies))
        addresses = {name: "{}:{}".format(*address) for name, address in coap.addresses.items()}
        counted = [AdapterCounters("coap", coap.counters)]
        if coap.dtls_counters is not None:
            counted.append(AdapterCounters("coap_dtls", coap.dtls_counters))
        adapters.append(_Adapter(counted, addresses))
    if settings.http is not None:
        from fogline_edge.adapters.http.listener import HttpListener  # noqa: PLC0415 - h11 costs 1 MB, and not all need it

        rates = make_rates(settings.limits)
        await start("http", http := HttpListener(outbox.port, settings.http, rates, downlink, budget, bodies=bodies))
        adapters.append(
            _Adapter(
                [AdapterCounters("http", http.counters)],
                {name: "{}:{}".format(*address) for name, address in http.addresses.items()},
            )
        )
    if settings.ble is not None:
        await start("ble", ble := make_ble(settings.ble, outbox, downlink))
        of_radio = (("ble", ble.counters), ("ble", ble.scan), ("ble_supervisor", ble.steps))
        adapters.append(_Adapter([AdapterCounters(*each) for each in of_radio]))
    for each in settings.mqtt_clients:
        from fogline_edge.adapters.mqtt_client.client import MqttClient  # noqa: PLC0415 - paho costs 6 MB, and not all need it

        await start(each.name, client := MqttClient(outbox.port, each, commands=downlink))
        counted = [AdapterCounters("mqtt_client", client.counters, (each.name,))]
        if client.command_counters is not None:
            counted.append(AdapterCounters("mqtt_client_commands", client.command_counters, (each.name,)))
        adapters.append(_Adapter(counted))
    return adapters


async def _serve_metrics(
    settings: EdgeSettings,
    outbox: Outbox,
    uplink: Uplink,
    downlink: Downlink,
    adapters: list[_Adapter],
    *,
    stack: contextlib.AsyncExitStack,
) -> str:
    from fogline.process.monitoring.metrics_server import MetricsServer  # noqa: PLC0415 - costs 4 MB, and not all gateways are watched

    assert settings.metrics is not None
    counters = [counted for each in adapters for counted in each.counters]

    def health() -> str:
        return outbox.failed.result() if outbox.failed.done() else ""

    read = partial(read_gateway, Path(settings.data), uplink, downlink, counters)
    server = MetricsServer(settings.metrics, "metrics", read, health)
    stack.push_async_callback(server.close)
    return await server.start()


def make_ble(settings: BleSettings, outbox: Outbox, downlink: Downlink) -> "BleAdapter":
    """Create the Bluetooth adapter. Raises `Misconfigured`."""
    require_bluetooth()
    from fogline_edge.adapters.ble.adapter import BleAdapter  # noqa: PLC0415 - takes time and memory, which gateways without Bluetooth save

    return BleAdapter(outbox.port, settings, downlink, outbox.clock)


async def _end(name: str, adapter: "_AnyAdapter") -> None:
    await adapter.close()
    counted = {each: value for each, value in asdict(adapter.counters).items() if value}
    _log.info("%s counted: %s", name, ", ".join(f"{each} {value}" for each, value in counted.items()) or "nothing")


def _spare_collections() -> None:
    """Let the garbage collector run rarely, and skip the objects of the start: the path of an event makes no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _serve(uplink: Uplink, outbox: Outbox, stop: asyncio.Event, watchman: Watchman) -> None:
    up = asyncio.create_task(uplink.run(), name="uplink")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    replaced = asyncio.create_task(outbox.copy.replaced.wait(), name="replaced")
    watching = asyncio.create_task(watchman.run(), name="watchman")
    tasks = (up, stopped, replaced, watching)
    try:
        waited: set[asyncio.Future[Any]] = {*tasks, outbox.failed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if outbox.failed.done():
            raise Misconfigured(outbox.failed.result())
        for each in (up, watching):
            if each.done():
                each.result()
        _log.info("stopping")
    finally:
        await end_tasks(*tasks)
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if isinstance(error, FoglineError) and not isinstance(error, MemoryExceeded):
                _log.error("%s", error)
