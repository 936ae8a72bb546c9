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
from fogline_edge.uplink.session import OnCommand, Session

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

    def __init__(self, outbox: Outbox, settings: UplinkSettings, on_command: OnCommand, backoff: Backoff | None = None) -> None:
        self.state = UplinkState()
        self._outbox = outbox
        self._settings = settings
        self._on_command = on_command
        self._backoff = backoff or Backoff()

    async def run(self) -> None:
        """Connect, serve, wait, connect again. Ends only by cancellation."""
        while True:
            wish_s = await self._serve()
            delay = self._backoff.next_s() if wish_s is None else self._backoff.asked_s(wish_s)
            _log.info("next try in %.1f s", delay)
            await asyncio.sleep(delay)

    async def _serve(self) -> float | None:
        """One connection, to its end. Returns when the bridge asks to come back, `None` if it said nothing."""
        session = Session(self._outbox, self._settings, self._on_command)
        began = time.monotonic()
        wish_s: float | None = None
        try:
            await session.run()
        except* Unreachable as group:
            self.state.why = str(first(group))
        except* SlowDown as group:
            slow = first(group)
            self.state.why = str(slow)
            wish_s = slow.retry_after_s
        if session.welcomed:
            self.state.connections += 1
            if time.monotonic() - began >= STABLE_S:
                self._backoff.stable()
        _log.warning("the connection to %s ended: %s", self._settings.bridge, self.state.why)
        return wish_s


def first(group: BaseExceptionGroup[E]) -> E:
    """The first error of a group, however deep."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error
