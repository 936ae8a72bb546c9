"""One stream from the outbox onto its lane, for as long as one connection lasts."""

import asyncio
import logging
from collections import deque
from typing import Any

from fogline.amqp.outcome import Outcome
from fogline.amqp.sending import Sender
from fogline.codec import MAX_BATCH_BYTES, Range, encode_batch
from fogline.crash import CrashPoint, crash_point
from fogline.errors import Unreachable
from fogline.event import Lane
from fogline.rates import Bucket
from fogline_edge.outbox.outbox import Outbox
from fogline_edge.outbox.work import StreamView
from fogline_edge.settings import UplinkSettings
from fogline_edge.uplink.window import Halve, HelloAgain, Pause, Quarantine, Settle, Window

RETRY_S = 0.5
"""How long a lane waits after the bridge would not take a batch at present."""
CAPPED = frozenset({Lane.TELEMETRY, Lane.BULK})
"""The lanes that `uplink.max_kib_s` is for."""

_log = logging.getLogger("fogline.uplink")


class Pump:
    """Sends what is stored, settles what is accepted. `run` ends only by cancellation or `Unreachable`.

    `budget`: the bytes that `CAPPED` lanes may send, all of them together.
    """

    def __init__(
        self, outbox: Outbox, sender: Sender, stream: StreamView, settings: UplinkSettings, budget: Bucket | None = None
    ) -> None:
        self.progressed = 0
        self.lane = stream.lane
        self._outbox = outbox
        self.sender = sender
        self._stream = stream.stream
        self._window = Window(stream.settled, settings.batch_events, settings.batches_in_flight)
        self._outcomes: deque[asyncio.Future[Outcome]] = deque()
        self._budget = budget if stream.lane in CAPPED else None
        self._loop = asyncio.get_running_loop()
        self._paid: asyncio.TimerHandle | None = None
        self._more = asyncio.Event()
        self._more.set()

    @property
    def waiting(self) -> bool:
        """Whether something is on its way and not settled."""
        return bool(self._outcomes)

    def wake(self) -> None:
        """There may be new rows."""
        self._more.set()

    async def run(self) -> None:
        """Send and settle until the connection ends."""
        try:
            await self._run()
        finally:
            if self._paid is not None:
                self._paid.cancel()

    async def _run(self) -> None:
        while True:
            while (limit := self._limit()) and await self._send(limit):
                pass
            await self._wait()
            while self._outcomes and self._outcomes[0].done():
                await self._take(self._outcomes.popleft().result())

    def _limit(self) -> int:
        """How many rows may go now; while there are none because of the budget, `wake` is called when there are."""
        limit = self._window.limit
        if not limit or self._budget is None or not (owed_s := self._budget.owed_s(self._loop.time())):
            return limit
        self._more.clear()
        if self._paid is None or self._paid.when() <= self._loop.time():
            self._paid = self._loop.call_later(owed_s, self.wake)
        return 0

    async def _send(self, limit: int) -> bool:
        self._more.clear()
        most = MAX_BATCH_BYTES if self._budget is None else min(MAX_BATCH_BYTES, int(self._budget.burst))
        rows = await self._outbox.read(self._stream, self._window.sent, limit, most)
        if not rows:
            return False
        first, last = rows[0].sequence - rows[0].spans + 1, rows[-1].sequence
        if first != self._window.sent + 1:
            self._outbox.suspect(f"stream {self._stream} has a hole before {first}")
            raise Unreachable(f"stream {self._stream} has a hole before {first} in the outbox")
        span = Range(self._outbox.gateway, self._stream, self.lane, first, last, rows[-1].chain)
        batch = encode_batch(span, [row.body for row in rows], self._outbox.clock.beacon())
        if self._budget is not None:
            self._budget.pay(self._loop.time(), len(batch.body))
        self._outcomes.append(self.sender.send(batch))
        self._window.push(first, last, len(rows))
        self._outbox.count_sent(self._stream, len(rows))
        self._more.set()
        return True

    async def _wait(self) -> None:
        """Until the oldest batch has an outcome, or there are new rows and room to send them."""
        wake = asyncio.ensure_future(self._more.wait())
        waited: list[asyncio.Future[Any]] = [self._outcomes[0]] if self._outcomes else []
        if self._window.limit or not waited:
            waited.append(wake)
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wake.cancel()

    async def _take(self, outcome: Outcome) -> None:
        match self._window.outcome(outcome):
            case Settle(upto):
                self.progressed += 1
                crash_point(CrashPoint.AFTER_SEND_BEFORE_SETTLE)
                self._outbox.settle(self._stream, upto)
            case Pause(why):
                _log.info("%s: %s", self.lane.value, why)
                await self._forget_flight()
                await asyncio.sleep(RETRY_S)
            case Halve(why):
                _log.warning("%s: %s", self.lane.value, why)
                await self._forget_flight()
            case Quarantine(first, sequence, condition, description) if first < sequence:
                raise Unreachable(f"the bridge refuses the gap record of {first}..{sequence}: {condition} {description}")
            case Quarantine(_, sequence, condition, description):
                _log.error("event %s/%d is refused: %s %s", self._stream, sequence, condition, description)
                await self._forget_flight()
                if not await self._outbox.quarantine(self._stream, sequence, condition, description):
                    raise Unreachable(f"the bridge refuses the gap record at {sequence}: {condition} {description}")
            case HelloAgain(why):
                raise Unreachable(why)
        self._more.set()

    async def _forget_flight(self) -> None:
        """Let what is in flight come to its end, whatever that is: the bridge recognises what it gets again."""
        if self._outcomes:
            await asyncio.wait(self._outcomes)
        outcomes, self._outcomes = self._outcomes, deque()
        for each in outcomes:
            each.result()
