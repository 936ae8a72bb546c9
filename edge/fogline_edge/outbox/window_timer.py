"""Closes windows of rules that are due, also if no event comes any more."""

import asyncio
import math
from collections.abc import Callable

from fogline_edge.outbox.port import OutboxPort

LONGEST_S = 60.0
"""Longest wait for a window, in seconds: the loop's clock stops while the machine sleeps, and the gateway's age goes on."""


class WindowTimer:
    """Used on the loop. Without windows there is no timer, and `look` costs a comparison.

    `due_ms`: returns the gateway's age at which a window is due, infinity for none. `age_ms`: returns the age.
    """

    def __init__(self, port: OutboxPort, due_ms: Callable[[], float], age_ms: Callable[[], int]) -> None:
        self._port = port
        self._due_ms = due_ms
        self._age_ms = age_ms
        self._loop = asyncio.get_running_loop()
        self._set_ms = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self.look()

    def look(self) -> None:
        """Set the timer. Call it after each commit."""
        due_ms = self._due_ms()
        if self._closing or due_ms >= self._set_ms:
            return
        self.close()
        self._set_ms = due_ms
        wait_s = max(0.0, (due_ms - self._age_ms()) / 1000)
        self._timer = self._loop.call_later(min(wait_s, LONGEST_S), self._rings)

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer, self._set_ms = None, math.inf
        if self._due_ms() > self._age_ms():
            self.look()
            return
        self._closing = True
        self._port.act(lambda ingest, group: ingest.close_windows(group), self._closed, reserve=False)

    def _closed(self, _: None) -> None:
        self._closing = False
        self.look()
