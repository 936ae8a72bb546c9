"""Connections to the bridge, one after the other, for as long as the gateway runs."""

import asyncio
import gc
import logging
import time
from dataclasses import dataclass
from itertools import cycle
from typing import TypeVar

from fogline.amqp.reconnect import Backoff
from fogline.errors import SlowDown, Unreachable
from fogline.rates import Bucket
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.session import OnCommand, Redirect, Session

REDIRECTED_S = 2.0
"""How long to wait after one bridge sent on to another, and that one was not there, or sent on again."""
MAX_REFUSALS = 5
"""After so many refusals in a row of one bridge, the next of those in the settings is tried."""
ATTEMPTS_A_COLLECTION = 16
"""Attempts to connect after which their garbage is collected: rare enough not to age what devices' connections hold."""
STABLE_S = 10.0
"""A connection that served for so long makes earlier failures forgotten."""

MAX_WARNED = 16
"""Bridges whose last warning is remembered: one that sends on to ever new addresses shall not fill the memory."""

_log = logging.getLogger("fogline.uplink")
E = TypeVar("E", bound=Exception)


@dataclass(slots=True)
class UplinkState:
    """What a person wants to know. `why`: the end of the last connection."""

    connected: bool = False
    connections: int = 0
    why: str = ""


class Uplink:
    """Keeps one connection to a bridge: the configured one, or of several the next after each failure.

    A bridge may send it on to the one that has its shard; when that does not serve it, the first is asked again,
    up to `MAX_REFUSALS` times.
    """

    def __init__(self, outbox: Outbox, settings: UplinkSettings, on_command: OnCommand, backoff: Backoff | None = None) -> None:
        self.state = UplinkState()
        self._outbox = outbox
        self._settings = settings
        self._on_command = on_command
        self._backoff = backoff or Backoff(settings.retry_s, settings.retry_cap_s)
        self._bridges = cycle(settings.bridges)
        self._warned: dict[str, str] = {}
        bytes_s = 1024 * settings.max_kib_s
        self._budget = Bucket(bytes_s, bytes_s, asyncio.get_running_loop().time()) if bytes_s else None

    async def run(self) -> None:
        """Connect, serve, wait, connect again. Ends only by cancellation."""
        bridge, sent_by, refusals, uncollected = next(self._bridges), "", 0, 0
        while True:
            served = self.state.connections
            ended = await self._serve(bridge)
            uncollected += 1
            if self.state.connections > served or uncollected == ATTEMPTS_A_COLLECTION:
                # asyncio leaves a cycle for each connection. Those of a served one are old: no collection of young ones finds
                # them. An attempt leaves some 50 kB, and the interpreter's own threshold comes after hundreds of them.
                gc.collect()
                uncollected = 0
            if isinstance(ended, Redirect) and not sent_by:
                bridge, sent_by = ended.where, bridge
                continue
            if ended is None and (not sent_by or self.state.connections > served):
                bridge, wait_s, refusals = next(self._bridges), self._backoff.next_s(), 0
            else:  # there is a bridge that answers: it will know when another one has the shard, or has it itself
                wish_s = ended.retry_after_s if ended is not None else None
                bridge, wait_s = sent_by or bridge, self._backoff.asked_s(wish_s or REDIRECTED_S)
                refusals = 1 if self.state.connections > served else refusals + 1
                if refusals >= MAX_REFUSALS:
                    bridge, refusals = next(self._bridges), 0
            sent_by = ""
            _log.info("next try, at %s, in %.1f s", bridge, wait_s)
            await asyncio.sleep(wait_s)

    async def _serve(self, bridge: str) -> SlowDown | None:
        """One connection, to its end. Returns the bridge's wish, `None` if it said nothing."""
        session = Session(self._outbox, self._settings, self._on_command, bridge, self._budget)
        began = time.monotonic()
        wish: SlowDown | None = None
        try:
            await session.run()
        except* Unreachable as group:
            self.state.why = str(first(group))
        except* SlowDown as group:
            wish = first(group).with_traceback(None)  # which refers to this frame, and so to itself
            self.state.why = str(wish)
        if session.welcomed:
            self._warned.clear()
            self.state.connections += 1
            if time.monotonic() - began >= STABLE_S:
                self._backoff.stable()
        self._log_end(bridge)
        return wish

    def _log_end(self, bridge: str) -> None:
        """Warn of what is new: an outage may last for days, and be tried every minute."""
        level = logging.INFO if self._warned.pop(bridge, None) == self.state.why else logging.WARNING
        self._warned[bridge] = self.state.why
        if len(self._warned) > MAX_WARNED:
            del self._warned[next(iter(self._warned))]
        _log.log(level, "the connection to %s ended: %s", bridge, self.state.why)


def first(group: BaseExceptionGroup[E]) -> E:
    """The first error of a group, however deep."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error
