"""Connects to a bridge again and again, while the gateway runs."""

import asyncio
import gc
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Protocol, TypeVar

from fogline.amqp.backoff import Backoff
from fogline.errors import SlowDown, Unreachable
from fogline.process.cancellation import raise_if_cancelled
from fogline.process.monitoring.metrics import Histogram
from fogline.process.rates import Bucket
from fogline.tracing.spans import ExportSpans
from fogline_edge.credentials.credential_updates import CredentialUpdates
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.pump import PumpContext
from fogline_edge.uplink.session import BridgeSession, OnCommand, Redirect
from fogline_edge.uplink.statistics_sender import ReadStatistics

REDIRECTED_S = 2.0
"""Pause after a redirect to a bridge that was unreachable, or redirected again."""
MAX_REFUSALS = 5
"""Refusals in a row of one bridge after which the next bridge of the settings is tried."""
ATTEMPTS_A_COLLECTION = 16
"""Attempts between garbage collections: few enough that the objects of devices' connections seldom age."""
STABLE_S = 10.0
"""A connection that lasted so long resets the back-off."""
MAX_WARNED = 16
"""Limit of bridges whose last warning is remembered: redirects may name ever new addresses."""


class OnState(Protocol):
    """Called with the bridge, whether it serves the gateway, and the reason if it does not."""

    def __call__(self, bridge: str, why: str, *, connected: bool) -> None:
        """Take the state."""


_log = logging.getLogger("fogline.uplink")
E = TypeVar("E", bound=Exception)


@dataclass(slots=True)
class UplinkState:
    """State of the uplink for `status`. `why`: reason for the end of the last connection."""

    connections: int = 0
    settlement_seconds: Histogram = field(default_factory=Histogram)
    why: str = ""


class Uplink:
    """Keeps one connection to a bridge; after each failure it tries the next bridge of the settings.

    A bridge may redirect to the owner of the gateway's shard. If the owner does not serve the gateway, the first bridge is
    asked again, up to `MAX_REFUSALS` times. `statistics`: read for each bridge that asks for them. `export`: takes the spans of
    settled events. `on_state`: called when a bridge serves the gateway, and when the connection has ended. `credentials`: takes
    those of devices, if the gateway needs them.
    """

    def __init__(
        self,
        outbox: Outbox,
        settings: UplinkSettings,
        on_command: OnCommand,
        backoff: Backoff | None = None,
        *,
        statistics: ReadStatistics | None = None,
        export: ExportSpans | None = None,
        on_state: OnState = lambda *_, **__: None,
        credentials: CredentialUpdates | None = None,
    ) -> None:
        self._on_state = on_state
        self._credentials = credentials
        self.state = UplinkState()
        self._on_command = on_command
        self._statistics = statistics
        self._backoff = backoff or Backoff(settings.retry_s, settings.retry_cap_s)
        self._bridges = cycle(settings.bridges)
        self._warned: dict[str, str] = {}
        self._session: BridgeSession | None = None
        bytes_s = 1024 * settings.max_kib_s
        budget = Bucket(bytes_s, bytes_s, asyncio.get_running_loop().time()) if bytes_s else None
        self._context = PumpContext(outbox, settings, budget, self.state.settlement_seconds, export)

    @property
    def connected(self) -> bool:
        """True while a bridge serves this gateway."""
        return self._session is not None and self._session.welcomed

    async def run(self) -> None:
        """Connect, serve and wait, in a loop. Ends only by cancellation."""
        bridge, redirected_by, refusals, uncollected = next(self._bridges), "", 0, 0
        while True:
            served = self.state.connections
            ended = await self._serve(bridge)
            uncollected += 1
            if self.state.connections > served or uncollected == ATTEMPTS_A_COLLECTION:
                # asyncio leaves a reference cycle for each connection. Those of a served connection are old, so that no young
                # collection finds them. An attempt leaves some 50 kB, and Python collects only after hundreds of attempts.
                gc.collect()
                uncollected = 0
            if isinstance(ended, Redirect) and not redirected_by:
                bridge, redirected_by = ended.where, bridge
                continue
            if ended is None and (not redirected_by or self.state.connections > served):
                bridge, wait_s, refusals = next(self._bridges), self._backoff.next_s(), 0
            else:  # this bridge answers: it knows the owner of the shard, or becomes the owner
                wanted_s = ended.retry_after_s if ended is not None else None
                bridge, wait_s = redirected_by or bridge, self._backoff.requested_s(wanted_s or REDIRECTED_S)
                refusals = 1 if self.state.connections > served else refusals + 1
                if refusals >= MAX_REFUSALS:
                    bridge, refusals = next(self._bridges), 0
            redirected_by = ""
            _log.info("connecting to %s in %.1f s", bridge, wait_s)
            await asyncio.sleep(wait_s)

    async def _serve(self, bridge: str) -> SlowDown | None:
        """Serve one connection to its end. Returns the bridge's refusal or redirect, `None` if there was none."""
        on_welcome = partial(self._on_state, bridge, "", connected=True)
        session = BridgeSession(self._context, bridge, self._on_command, self._statistics, on_welcome, self._credentials)
        self._session = session
        began = time.monotonic()
        refusal: SlowDown | None = None
        try:
            await session.run()
        except* Unreachable as group:
            self.state.why = str(first(group))
        except* SlowDown as group:
            refusal = first(group).with_traceback(None)  # its traceback refers to this frame, and so to itself
            self.state.why = str(refusal)
        self._session = None
        raise_if_cancelled()  # a stop at the moment at which the connection ends
        if session.welcomed:
            self._warned.clear()
            self.state.connections += 1
            if time.monotonic() - began >= STABLE_S:
                self._backoff.stable()
        self._log_end(bridge)
        self._on_state(bridge, self.state.why, connected=False)
        return refusal

    def _log_end(self, bridge: str) -> None:
        """Warn once for each reason in a row: an outage may last for days, with an attempt every minute."""
        level = logging.INFO if self._warned.pop(bridge, None) == self.state.why else logging.WARNING
        self._warned[bridge] = self.state.why
        if len(self._warned) > MAX_WARNED:
            del self._warned[next(iter(self._warned))]
        _log.log(level, "the connection to %s ended: %s", bridge, self.state.why)


def first(group: BaseExceptionGroup[E]) -> E:
    """Return the first error of a group, at any depth."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error
