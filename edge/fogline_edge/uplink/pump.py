"""Sends one stream of the outbox over the link of its lane, until the link or the connection ends."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fogline.amqp.outcome import Outcome
from fogline.errors import Unreachable
from fogline.events.codec import MAX_BATCH_BYTES, Range, chain_of, encode_batch
from fogline.events.event import Lane
from fogline.process.crash_points import CrashPoint, crash_point
from fogline.process.monitoring.metrics import Histogram
from fogline.process.rates import Bucket
from fogline.tracing.context import may_be_traced
from fogline.tracing.spans import ExportSpans
from fogline_edge.event_spans import forward_spans
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.rows.streams import EventRecord
from fogline_edge.outbox.writer.stream_views import StreamView
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.batch_delay import BatchDelay
from fogline_edge.uplink.via.signed_sender import BatchSender
from fogline_edge.uplink.window import Halve, HelloAgain, InflightWindow, PauseSending, QuarantineEvent, Settle

RETRY_S = 0.5
"""Pause after the bridge could not take a batch."""
CAPPED = frozenset({Lane.TELEMETRY, Lane.BULK})
"""Lanes that `uplink.max_kib_s` limits."""

_log = logging.getLogger("fogline.uplink")


@dataclass(frozen=True, slots=True)
class PumpContext:
    """The values that all pumps of an uplink share.

    `budget`: bytes that all `CAPPED` lanes together may send. `export`: takes the spans of settled events.
    """

    outbox: Outbox
    settings: UplinkSettings
    budget: Bucket | None
    settlement_seconds: Histogram
    export: ExportSpans | None


class _SentBatch(NamedTuple):
    """The time at which a batch was sent, by the loop's clock, and its events that may be traced, by the wall clock."""

    at_s: float
    traced: Sequence[bytes] = ()
    at_ns: int = 0


class Pump:
    """Sends stored rows and settles accepted ones. `progressed` counts settlements. `epoch`: of the connection's hello."""

    def __init__(self, context: PumpContext, sender: BatchSender, stream: StreamView, epoch: str) -> None:
        settings = context.settings
        self.progressed = 0
        self.lane = stream.lane
        self._outbox = context.outbox
        self.sender = sender
        self._stream = stream.stream
        self._epoch = epoch
        self._window = InflightWindow(stream.settled, settings.batch_events, settings.batches_in_flight)
        self._outcomes: deque[asyncio.Future[Outcome]] = deque()
        self._sent: deque[_SentBatch] = deque()
        self._export = context.export
        self._settlement_seconds = context.settlement_seconds
        self._budget = context.budget if stream.lane in CAPPED else None
        self._loop = asyncio.get_running_loop()
        self._budget_timer: asyncio.TimerHandle | None = None
        self._batch_delay = BatchDelay(stream, context.outbox.streams.live_rows, settings.batch_events, self._look)
        self._more = True
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """True if a batch is in flight."""
        return bool(self._outcomes)

    def wake(self) -> None:
        """Look for new rows, at once or after the delay of a batch."""
        if not (self._outcomes and self._batch_delay.begin()):
            self._look()

    def _look(self) -> None:
        self._batch_delay.end()
        self._more = True
        self._changed.set()

    async def run(self) -> None:
        """Send and settle. Ends only by cancellation or `Unreachable`."""
        try:
            await self._run()
        finally:
            self._batch_delay.end()
            if self._budget_timer is not None:
                self._budget_timer.cancel()

    async def _run(self) -> None:
        while True:
            while (limit := self._limit()) and await self._send(limit):
                pass
            await self._wait()
            while self._outcomes and self._outcomes[0].done():
                await self._take(self._outcomes.popleft().result(), self._sent.popleft())

    def _limit(self) -> int:
        """Return the limit of rows in the next batch. If the budget allows none now, a timer calls `wake` when it does."""
        limit = self._window.limit
        if not limit or self._budget is None or not (owed_s := self._budget.owed_s(self._loop.time())):
            return limit
        self._more = False
        if self._budget_timer is None or self._budget_timer.when() <= self._loop.time():
            self._budget_timer = self._loop.call_later(owed_s, self._look)
        return 0

    async def _send(self, limit: int) -> bool:
        self._batch_delay.end()
        self._more = False
        most = MAX_BATCH_BYTES if self._budget is None else min(MAX_BATCH_BYTES, int(self._budget.burst))
        rows = await self._outbox.streams.read(self._stream, self._window.sent, limit, most)
        if not rows:
            return False
        first, last = rows[0].sequence - rows[0].spans + 1, rows[-1].sequence
        if first != self._window.sent + 1:
            self._outbox.suspect(f"stream {self._stream} has a hole before {first}")
            raise Unreachable(f"stream {self._stream} has a hole before {first} in the outbox")
        span = Range(self._outbox.gateway, self._stream, self.lane, first, last, chain_of(rows[-1].commit_id), self._epoch)
        batch = encode_batch(span, [row.body for row in rows], self._outbox.clock.beacon())
        if self._budget is not None:
            self._budget.pay(self._loop.time(), len(batch.body))
        sent = self._sent_now(rows)  # before the bridge can have it, so that its span begins before the bridge's
        outcome = self.sender.send(batch)
        outcome.add_done_callback(self._note_outcome)
        self._outcomes.append(outcome)
        self._sent.append(sent)
        self._window.push(first, last, len(rows))
        self._outbox.streams.count_sent(self._stream, len(rows))
        self._more = True
        return True

    async def _wait(self) -> None:
        """Wait until the oldest batch has an outcome, or new rows may be sent."""
        while not (self._outcomes and self._outcomes[0].done()):
            if self._more and (self._window.limit or not self._outcomes):
                return
            self._changed.clear()
            await self._changed.wait()

    def _note_outcome(self, _: "asyncio.Future[Outcome]") -> None:
        self._changed.set()

    def _sent_now(self, rows: Sequence[EventRecord]) -> _SentBatch:
        traced = [row.body for row in rows if may_be_traced(row.body)] if self._export is not None else ()
        return _SentBatch(self._loop.time(), traced, self._outbox.clock.time_ns() if traced else 0)

    def _trace(self, sent: _SentBatch, *, error: str = "") -> None:
        if sent.traced and self._export is not None:
            times_ns = sent.at_ns, self._outbox.clock.time_ns()
            self._export(forward_spans(sent.traced, self.sender.link.address, times_ns, error=error))

    async def _take(self, outcome: Outcome, sent: _SentBatch) -> None:
        match self._window.outcome(outcome):
            case Settle(upto):
                self.progressed += 1
                self._settlement_seconds.observe(self._loop.time() - sent.at_s)
                crash_point(CrashPoint.AFTER_SEND_BEFORE_SETTLE)
                self._outbox.streams.settle(self._stream, upto)
                self._trace(sent)
            case PauseSending(why):
                _log.info("%s: %s", self.lane.value, why, extra={"lane": self.lane.value})
                await self._drain_flight()
                await asyncio.sleep(RETRY_S)
            case Halve(why):
                _log.warning("%s: %s", self.lane.value, why, extra={"lane": self.lane.value})
                await self._drain_flight()
            case QuarantineEvent(first, sequence, condition, description) if first < sequence:
                raise Unreachable(f"the bridge refuses the gap record of {first}..{sequence}: {condition} {description}")
            case QuarantineEvent(_, sequence, condition, description):
                extra = {"lane": self.lane.value, "reason": condition}
                text = "the bridge refuses event %s/%d for good: %s %s"
                _log.error(text, self._stream, sequence, condition, description, extra=extra)
                self._trace(sent, error=f"{condition} {description}".strip())
                await self._drain_flight()
                if not await self._outbox.streams.quarantine(self._stream, sequence, condition, description):
                    raise Unreachable(f"the bridge refuses the gap record at {sequence}: {condition} {description}")
            case HelloAgain(why):
                raise Unreachable(why)
        self._more = True

    async def _drain_flight(self) -> None:
        """Wait for every outcome in flight and ignore it: the bridge discards the events that it gets twice."""
        if self._outcomes:
            await asyncio.wait(self._outcomes)
        outcomes, self._outcomes = self._outcomes, deque()
        self._sent.clear()
        for each in outcomes:
            each.result()
