"""The gateway: every part of it made and wired, on one page."""

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fogline.census import answer_sigusr1
from fogline.errors import FoglineError, Misconfigured
from fogline.settings import require_loopback, split_endpoint
from fogline.signature import read_keys
from fogline_edge.adapters.ble.listing import read_settings
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.mqtt.listener import MqttListener, make_rates
from fogline_edge.adapters.mqtt_client.access import check_client
from fogline_edge.adapters.mqtt_client.client import MqttClient
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.opening import FILE
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.room import NoRoom
from fogline_edge.settings import BleSettings, Settings
from fogline_edge.uplink.uplink import Uplink

if TYPE_CHECKING:
    from fogline_edge.adapters.ble.adapter import BleAdapter

ROOM_S = 30.0
"""How often a gateway that finds no room on the disk at its start looks again."""

_log = logging.getLogger("fogline.gateway")


async def run_gateway(settings: Settings, on_ready: Callable[[dict[str, str]], None]) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the addresses that are listened on.

    Raises `Misconfigured` if something has to be changed first, or if the outbox's file fails: then nothing more was
    acknowledged, and a restart goes on from what is durable.
    """
    check(settings)
    _spare_collections()
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    answer_sigusr1()
    outbox = await _open_outbox(settings, stop)
    if outbox is None:
        return
    try:
        keys = read_keys(settings.commands.keys, "commands.keys", partial=settings.commands.partial_signatures)
        downlink = Downlink(outbox, keys)
        await downlink.start()
        async with contextlib.AsyncExitStack() as open_adapters:
            open_adapters.callback(downlink.close)
            addresses = await _open_adapters(settings, outbox, downlink, open_adapters)
            on_ready(addresses)
            await _serve(Uplink(outbox, settings.uplink, downlink.received), outbox, stop)
    finally:
        await outbox.close()


async def _open_outbox(settings: Settings, stop: asyncio.Event) -> Outbox | None:
    """The outbox, once the disk has room for it; None if `stop` comes first.

    Raises `Misconfigured`, and `NoRoom` where there never was an outbox: then somebody is there to read it.
    """
    file = Path(settings.data) / FILE
    while not stop.is_set():
        try:
            return Outbox.open(settings)
        except NoRoom as error:
            if not file.exists() or not file.stat().st_size:
                raise
            _log.error("%s (tried again every %.0f s)", error, ROOM_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), ROOM_S)
    return None


async def _open_adapters(
    settings: Settings, outbox: Outbox, downlink: Downlink, stack: contextlib.AsyncExitStack
) -> dict[str, str]:
    """Start every adapter that the settings name; `stack` closes them. Returns the addresses that are listened on."""
    addresses: dict[str, str] = {}
    if settings.mqtt is not None:
        mqtt = MqttListener(outbox, settings.mqtt, downlink, make_rates(settings.limits))
        stack.push_async_callback(_end, "mqtt", mqtt)
        await mqtt.start()
        addresses["mqtt"] = "{}:{}".format(*mqtt.address)
    if settings.coap is not None:
        coap = CoapListener(outbox, settings.coap, downlink)
        stack.push_async_callback(_end, "coap", coap)
        await coap.start()
        addresses["coap"] = "{}:{}".format(*coap.address)
    if settings.ble is not None:
        ble = make_ble(settings.ble, outbox, downlink)
        stack.push_async_callback(_end, "ble", ble)
        await ble.start()
    for each in settings.mqtt_clients:
        client = MqttClient(outbox, each)
        stack.push_async_callback(_end, each.name, client)
        await client.start()
    return addresses


def require_bluetooth() -> None:
    """Raises `Misconfigured` where Bluetooth cannot be: it is BlueZ's, so Linux's, and bleak's."""
    if sys.platform != "linux":
        raise Misconfigured("Bluetooth needs Linux with BlueZ; remove [ble] from the settings")
    missing = [name for name in ("bleak", "bleak_retry_connector", "dbus_fast") if find_spec(name) is None]
    if missing:
        raise Misconfigured(f"Bluetooth needs {', '.join(missing)}: pip install fogline-edge")


def make_ble(settings: BleSettings, outbox: Outbox, downlink: Downlink) -> "BleAdapter":
    """The Bluetooth adapter. Raises `Misconfigured`."""
    require_bluetooth()
    from fogline_edge.adapters.ble.adapter import BleAdapter  # noqa: PLC0415 - costs time and memory, and not all need it

    return BleAdapter(outbox, settings, downlink, outbox.clock)


async def _end(name: str, adapter: "MqttListener | CoapListener | MqttClient | BleAdapter") -> None:
    """Close an adapter, and say what it has counted."""
    await adapter.close()
    counted = {each: value for each, value in asdict(adapter.counters).items() if value}
    _log.info("%s counted: %s", name, ", ".join(f"{each} {value}" for each, value in counted.items()) or "nothing")


def check(settings: Settings) -> None:
    """What the types cannot say. Raises `Misconfigured`."""
    for bridge in settings.uplink.bridges:
        host, _ = split_endpoint(bridge, "uplink.bridge")
        require_loopback(host, "uplink.bridge")
    read_keys(settings.commands.keys, "commands.keys")
    for each in settings.mqtt_clients:
        check_client(each)
    if settings.ble is not None:
        require_bluetooth()
        read_settings(settings.ble)
    if settings.mqtt is None and settings.coap is None and settings.ble is None and not settings.mqtt_clients:
        raise Misconfigured("no adapter is configured: add [mqtt], [coap], [ble] or [[mqtt_clients]] to the settings")


def _spare_collections() -> None:
    """Nothing on the path of an event makes cycles: look for them rarely, and never among what the start has made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _serve(uplink: Uplink, outbox: Outbox, stop: asyncio.Event) -> None:
    """Until `stop`, or until uplink or outbox fail."""
    up = asyncio.create_task(uplink.run(), name="uplink")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        waited: set[asyncio.Future[Any]] = {up, stopped, outbox.failed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if outbox.failed.done():
            raise Misconfigured(outbox.failed.result())
        if up.done():
            up.result()
        _log.info("stopping")
    finally:
        for task in (up, stopped):
            task.cancel()
        for ended in await asyncio.gather(up, stopped, return_exceptions=True):
            if isinstance(ended, FoglineError):
                _log.error("%s", ended)
