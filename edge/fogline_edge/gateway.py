"""The gateway: every part of it made and wired, on one page."""

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

from fogline.errors import FoglineError, Misconfigured
from fogline.settings import require_loopback, split_endpoint
from fogline.signature import read_keys
from fogline_edge.adapters.mqtt.listener import MqttListener
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
    stop = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stop.set)
    outbox = Outbox.open(settings)
    try:
        downlink = Downlink(outbox, read_keys(settings.commands.keys, "commands.keys"))
        await downlink.start()
        mqtt = MqttListener(outbox, settings.mqtt) if settings.mqtt else None
        if mqtt is not None:
            await mqtt.start()
        try:
            on_ready({"mqtt": "{}:{}".format(*mqtt.address)} if mqtt is not None else {})
            await _serve(Uplink(outbox, settings.uplink, downlink.received), outbox, stop)
        finally:
            if mqtt is not None:
                await mqtt.close()
            downlink.close()
    finally:
        await outbox.close()


def check(settings: Settings) -> None:
    """What the types cannot say. Raises `Misconfigured`."""
    host, _ = split_endpoint(settings.uplink.bridge, "uplink.bridge")
    require_loopback(host, "uplink.bridge")
    read_keys(settings.commands.keys, "commands.keys")


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
