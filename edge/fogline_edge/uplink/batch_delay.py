"""Delays new rows of a stream while a batch is in flight, so that batches grow (RFC 896; docs/decisions/0042)."""

import asyncio
from collections.abc import Callable

from fogline.events.codec import MAX_BATCH_BYTES
from fogline.events.event import Lane
from fogline_edge.outbox.live_rows import LiveRows
from fogline_edge.outbox.writer.stream_views import StreamView

LANES = frozenset({Lane.TELEMETRY, Lane.BULK})
"""Lanes whose events are delayed. Their devices have the acknowledgement already, and a message for each event costs gateway,
bridge and line more than the event itself."""
LONGEST_S = 0.2
ENOUGH_EVENTS = 50
"""A batch of so many rows is not delayed: more rows save little, and take the loop from a command for longer."""


class BatchDelay:
    """The delay of one stream's new rows. Used on the loop. `look`: called when they have been delayed for `LONGEST_S`."""

    def __init__(self, stream: StreamView, rows: LiveRows, batch_events: int, look: Callable[[], None]) -> None:
        self._stream = stream.stream
        self._delays = stream.lane in LANES
        self._rows = rows
        self._enough = min(ENOUGH_EVENTS, batch_events)
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> bool:
        """Delay the rows. Returns False if they must be sent now."""
        if not self._delays or self._rows.fills_batch(self._stream, self._enough, MAX_BATCH_BYTES):
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(LONGEST_S, self._look)
        return True

    def end(self) -> None:
        """End the delay, because the rows are read or the link ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
