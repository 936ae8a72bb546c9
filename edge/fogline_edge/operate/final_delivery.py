"""Delivers the events of a gateway that a restored copy has replaced, and serves no devices."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from fogline.amqp.outcome import RELEASED, Outcome
from fogline.commands.cancel import CancelRequest
from fogline.commands.command import Command, JournalQuery
from fogline.errors import FoglineError, Misconfigured
from fogline.process import service_manager
from fogline.process.cancellation import end_tasks
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.uplink import Uplink

LOOK_S = 1.0
"""Interval at which it looks whether everything is delivered."""
WHY = "this gateway was replaced by one that was restored from its backup later"

_log = logging.getLogger("fogline.gateway")


async def deliver_the_rest(outbox: Outbox, settings: UplinkSettings, stop: asyncio.Event) -> None:
    """Send all stored events, then keep silent until `stop`: without the process, a service manager would start it again.

    Raises `Misconfigured` if the outbox's file fails.
    """
    _log.error("%s: it serves no devices any more, and delivers the events that it has", WHY)
    service_manager.tell(f"STATUS={WHY}; it delivers the events that it has")
    sending = asyncio.create_task(_deliver(outbox, settings), name="delivery")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        waited: set[asyncio.Future[Any]] = {sending, stopped, outbox.failed}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if outbox.failed.done():
            raise Misconfigured(outbox.failed.result())
    finally:
        await end_tasks(sending, stopped)
        if not sending.cancelled() and isinstance(error := sending.exception(), FoglineError):
            _log.error("%s", error)


async def _deliver(outbox: Outbox, settings: UplinkSettings) -> None:
    """Connect whenever events wait: at first those of devices, later the statements of their counts."""
    while True:
        if await _waits(outbox):
            uplink = asyncio.create_task(Uplink(outbox, settings, _release).run(), name="uplink")
            try:
                while await _waits(outbox) and not uplink.done():  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(LOOK_S)
            finally:
                await end_tasks(uplink)
            _log.warning("all events are delivered. To use this machine for something else: fogline-edge reset")
            service_manager.tell(f"STATUS={WHY}; all events are delivered")
        await asyncio.sleep(LOOK_S)


async def _waits(outbox: Outbox) -> bool:
    """Return True if the bridge has not accepted every event."""
    return any(each.head != each.settled for each in await outbox.streams.pending())


def _release(command: Command | JournalQuery | CancelRequest, settle: Callable[[Outcome], None]) -> None:  # noqa: ARG001 - OnCommand
    settle(RELEASED)
