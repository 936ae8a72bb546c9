"""Connections to the bridge, one after the other, for as long as the gateway runs."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TypeVar

from fogline.amqp.reconnect import Backoff
from fogline.errors import SlowDown, Unreachable
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.session import Session

STABLE_S = 10.0
"""A connection that served for so long makes earlier failures forgotten."""

_log = logging.getLogger("fogline.uplink")
E = TypeVar("E", bound=Exception)


@dataclass(slots=True)
class UplinkState:
    """What a person wants to know. `why`: the end of the last connection."""

    connected: bool = False
    connections: int = 0
    why: str = ""


class Uplink:
    """Keeps one connection to the bridge."""

    def __init__(self, outbox: Outbox, settings: UplinkSettings, backoff: Backoff | None = None) -> None:
        self.state = UplinkState()
        self._outbox = outbox
        self._settings = settings
        self._backoff = backoff or Backoff()

    async def run(self) -> None:
        """Connect, serve, wait, connect again. Ends only by cancellation."""
        while True:
            delay = self._backoff.next_s(await self._serve())
            _log.info("next try in %.1f s", delay)
            await asyncio.sleep(delay)

    async def _serve(self) -> float:
        """One connection, to its end. Returns how long the bridge asks to be left alone."""
        session = Session(self._outbox, self._settings)
        began = time.monotonic()
        at_least_s = 0.0
        try:
            await session.run()
        except* Unreachable as group:
            self.state.why = str(first(group))
        except* SlowDown as group:
            slow = first(group)
            self.state.why = str(slow)
            at_least_s = slow.retry_after_s
        if session.welcomed:
            self.state.connections += 1
            if time.monotonic() - began >= STABLE_S:
                self._backoff.stable()
        _log.warning("the connection to %s ended: %s", self._settings.bridge, self.state.why)
        return at_least_s


def first(group: BaseExceptionGroup[E]) -> E:
    """The first error of a group, however deep."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error
