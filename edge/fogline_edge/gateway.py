"""The gateway: every part of it made and wired, on one page."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fogline.errors import FoglineError, Misconfigured
from fogline.settings import require_loopback, split_endpoint
from fogline.signature import read_keys
from fogline_edge.adapters.coap.listener import CoapListener
from fogline_edge.adapters.mqtt.listener import MqttListener, make_rates
from fogline_edge.adapters.mqtt_client.access import check_client
from fogline_edge.adapters.mqtt_client.client import MqttClient
from fogline_edge.downlink.downlink import Downlink
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import Settings
from fogline_edge.uplink.uplink import Uplink

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
    outbox = Outbox.open(settings)
    try:
        downlink = Downlink(outbox, read_keys(settings.commands.keys, "commands.keys"))
        await downlink.start()
        async with contextlib.AsyncExitStack() as open_adapters:
            open_adapters.callback(downlink.close)
            addresses = await _open_adapters(settings, outbox, downlink, open_adapters)
            on_ready(addresses)
            await _serve(Uplink(outbox, settings.uplink, downlink.received), outbox, stop)
    finally:
        await outbox.close()


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
    for each in settings.mqtt_clients:
        client = MqttClient(outbox, each)
        stack.push_async_callback(_end, each.name, client)
        await client.start()
    return addresses


async def _end(name: str, adapter: MqttListener | CoapListener | MqttClient) -> None:
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
    if settings.mqtt is None and settings.coap is None and not settings.mqtt_clients:
        raise Misconfigured("no adapter is configured: add [mqtt], [coap] or [[mqtt_clients]] to the settings")


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
