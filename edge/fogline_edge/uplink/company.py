"""Lets new rows of a stream wait for company while a batch is in flight, where nobody waits for them (docs/decisions/0042)."""

import asyncio
from collections.abc import Callable

from fogline.codec import MAX_BATCH_BYTES
from fogline.event import Lane
from fogline_edge.outbox.live_rows import LiveRows
from fogline_edge.outbox.writer.stream_views import StreamView

LANES = frozenset({Lane.TELEMETRY, Lane.BULK})
"""Lanes whose events wait. A device has its acknowledgement already, and a message for each event costs gateway, bridge and
line more than the event itself. TCP's small segments wait so too (RFC 896)."""
LONGEST_S = 0.2
ENOUGH_EVENTS = 50
"""More in a message save little, and take the loop from a command for longer."""


class Company:
    """The wait of one stream's new rows. Used on the loop. `look`: is called when they have waited for `LONGEST_S`."""

    def __init__(self, stream: StreamView, rows: LiveRows, batch_events: int, look: Callable[[], None]) -> None:
        self._stream = stream.stream
        self._waits = stream.lane in LANES
        self._rows = rows
        self._enough = min(ENOUGH_EVENTS, batch_events)
        self._look = look
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> bool:
        """Let the rows wait. Returns False if they are not to wait any longer."""
        if not self._waits or self._rows.fills_batch(self._stream, self._enough, MAX_BATCH_BYTES):
            return False
        if self._timer is None:
            self._timer = self._loop.call_later(LONGEST_S, self._look)
        return True

    def end(self) -> None:
        """End the wait, because the rows are read or the link ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
