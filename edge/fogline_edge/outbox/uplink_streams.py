"""The outbox's streams on the event loop, for the uplink: it reads events, and settles those that the bridge accepted."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from fogline.events.event import Lane
from fogline.gateway.hello import Own
from fogline_edge.outbox.live_rows import LiveRows
from fogline_edge.outbox.rows.streams import EventRecord
from fogline_edge.outbox.writer import reading, rejection, renumbering, stream_views
from fogline_edge.outbox.writer.store import PURGED_ROWS, OutboxStore
from fogline_edge.outbox.writer.stream_views import StreamView
from fogline_edge.outbox.writer.writer_queue import IGNORE, Call, LoopCalls, NewRows, Settlement

_SETTLE_DELAY_S, _SETTLE_DELAY_FULL_S = 5.0, 0.1  # until the writer learns of settlements if nothing else wakes it

_log = logging.getLogger("fogline.outbox")


class UplinkStreams:
    """Reads and changes of the outbox's streams. Used on the loop. `live_rows`: those that wait to be read."""

    def __init__(self, calls: LoopCalls) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self.live_rows = LiveRows()
        self._wake: Callable[[str | None], None] = IGNORE
        self._settlement = Settlement()
        self._settle_timer: asyncio.TimerHandle | None = None
        self._full = False

    async def pending(self) -> list[StreamView]:
        """Return every stream that hello announces: open ones, and closed ones with unsettled rows."""
        self.hand_over()
        return await self._calls.call(stream_views.pending)

    async def own(self, stream: str, chain_sequence: int, now_ns: int) -> Own | None:
        """Return a stream's state for hello, or None if there is none of that name.

        `chain_sequence`: the sequence of the bridge's newest chain value. `now_ns`: the bridge's clock.
        """
        return await self._calls.call(partial(stream_views.own, name=stream, chain_sequence=chain_sequence, now_ns=now_ns))

    async def read(self, stream: str, after: int, limit: int, limit_bytes: int | None = None) -> list[EventRecord]:
        """Return at most `limit` events of a stream with sequences above `after`, in order.

        Their bodies have at most `limit_bytes` in total, unless the first one alone has more.
        """
        rows = self.live_rows.take(stream, after, limit, limit_bytes)
        if rows is not None:
            return rows

        def run(store: OutboxStore) -> list[EventRecord]:
            found, live = reading.read(store, stream, after, limit, limit_bytes)
            if live:  # before any row that is committed later
                self._calls.call_on_loop(self.live_rows.follow, stream, found[-1].sequence if found else after)
            return found

        return await self._calls.call(run)

    def start_sending(self, wake: Callable[[str | None], None]) -> None:
        """Call `wake` with the name of each stream that gets new events, until `stop_sending`. None means any stream."""
        self._wake = wake

    def stop_sending(self) -> None:
        """Note that the connection has ended: nothing is sent until the next one reads the streams again."""
        self._wake = IGNORE
        self.live_rows.clear()
        self._calls.submit(Call(reading.leave, done=IGNORE, failed=IGNORE))

    def settle(self, stream: str, upto: int) -> None:
        """Note that the bridge accepted everything up to `upto`. The rows are deleted later, many at a time.

        After a crash in between the rows are sent again, and the bridge discards them.
        """
        self._settlement.upto[stream] = max(upto, self._settlement.upto.get(stream, 0))
        if self._settlement.sent.get(stream, 0) >= PURGED_ROWS:
            self.hand_over()
        else:
            self._settle_soon()

    def count_sent(self, stream: str, events: int) -> None:
        """Count events that were handed to the connection."""
        self._settlement.sent[stream] = self._settlement.sent.get(stream, 0) + events
        self._settle_soon()

    async def quarantine(self, stream: str, sequence: int, condition: str, description: str) -> bool:
        """Move one rejected event to quarantine; a gap record takes its place in the stream.

        Returns False if the event is itself a gap record, which is never quarantined.
        """
        rejected = rejection.RejectedEvent(stream, sequence, condition, description)
        done = await self._calls.call(partial(rejection.quarantine, rejected=rejected))
        self._wake(None)  # events that were deleted to make room have a gap record at the end of a stream
        return done

    async def reopen(self, stream: str, upto: int, why: str, landed: int | None = None) -> None:
        """Move a stream's events above `upto` to a new stream, marked `replayed`: its numbering cannot be trusted.

        `landed`: the highest sequence that the bridge has. A gap record names those that it had accepted above it.
        """
        _log.error("stream %s: %s. Resending its unconfirmed events in a new stream.", stream, why)
        while await self._calls.call(partial(renumbering.reopen, name=stream, upto=upto, why=why, landed=landed)):
            pass
        self._wake(None)

    async def split_backlog(self, lanes: frozenset[Lane], events: int) -> None:
        """For each lane with more than `events` waiting, send new events first, in a stream of their own.

        Raises `Unreachable` if there is no room for the new stream.
        """
        self.hand_over()
        for each in await self._calls.call(partial(renumbering.split_backlog, lanes=lanes, events=events)):
            text, extra = "lane %s: %d events wait; new events are sent before them", {"lane": each.lane.value}
            _log.warning(text, each.lane, each.backlog, extra=extra)

    # --- the outbox's side

    def committed(self, new_rows: NewRows) -> None:
        """Keep the rows of streams that the uplink has read to the end, and wake it."""
        for name, rows in new_rows:
            if rows is None:
                self.live_rows.leave(name)
            elif not self.live_rows.add(name, rows):
                self._calls.submit(Call(partial(reading.leave, name=name), done=IGNORE, failed=IGNORE))
            self._wake(name)

    def set_full(self, full: bool) -> None:  # noqa: FBT001 - a state, not an option
        """Note whether the outbox is full. Then settlements are handed over sooner, because their rows make room."""
        self._full = full
        self.hand_over()

    def hand_over(self) -> None:
        """Hand the settlement over to the writer, if there is one."""
        if self._settle_timer is not None:
            self._settle_timer.cancel()
            self._settle_timer = None
        if self._settlement.upto or self._settlement.sent:
            self._calls.submit(self._settlement)
            self._settlement = Settlement()

    def _settle_soon(self) -> None:
        if self._settle_timer is None:
            delay_s = _SETTLE_DELAY_FULL_S if self._full else _SETTLE_DELAY_S
            self._settle_timer = self._loop.call_later(delay_s, self.hand_over)
