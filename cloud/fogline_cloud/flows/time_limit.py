"""A time limit for one call to foreign code, by `setitimer` in the main thread.

It limits CPU time, so that a good parser does not fail on a busy machine; a call that waits ends after `PATIENCE` limits of the
clock. The alarm repeats, in case a parser swallows it. It cannot interrupt one long call into C: see `guard`.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeVar

T = TypeVar("T")

PATIENCE = 20
"""Number of limits that may pass by the clock, whatever CPU time was used."""
_NEARLY = 0.9  # share of the limit that counts as all of it: an alarm may come a little before the CPU clock reaches it


class Overrun(BaseException):
    """The call exceeded its limit. Not an `Exception`, so that a parser's `except Exception` does not swallow it."""


class TimeLimit:
    """Limits calls to `limit_s` of CPU time. A context manager for the main thread only (else `RuntimeError`). Uses SIGALRM."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = self._least_s = limit_s
        self._armed = False
        self._alarms = 0
        self._began_s = 0.0

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a time limit works in the main thread only")
        self._former = signal.signal(signal.SIGALRM, self._alarm)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGALRM, self._former)

    def call(self, function: Callable[[], T], share: float = 1.0) -> T:
        """Return the result of `function`, within this share of the limit. Raises `Overrun`, and its exceptions."""
        limit_s = self.limit_s * share
        try:
            self._alarms = 0
            self._least_s = limit_s * _NEARLY
            self._began_s = time.thread_time()
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)
            return function()
        finally:
            self._armed = False  # inline, so that no alarm comes between the end of the call and this
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _alarm(self, _signal: int, _frame: FrameType | None) -> None:
        self._alarms += 1
        used_s = time.thread_time() - self._began_s
        if self._armed and (used_s >= self._least_s or self._alarms >= PATIENCE):
            raise Overrun
