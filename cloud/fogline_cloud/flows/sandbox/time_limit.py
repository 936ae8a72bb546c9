"""A time limit for calls to foreign code, by `setitimer` in the main thread.

It limits CPU time, so that a good parser does not fail on a busy machine; a call that waits ends after `PATIENCE` limits of the
clock. The alarm repeats, in case a parser swallows it. It cannot interrupt one long call into C: see `guard`.

Alarms come twice in a limit, whichever call runs, because a timer for each call costs as much as a small parser. So a call is
ended after one limit at least, and after one and a half at most.
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
_ALARMS = 2  # in a limit
_NEARLY = 0.9  # share of the limit that counts as all of it: an alarm may come a little before the CPU clock reaches it


class Overrun(BaseException):
    """The call exceeded its limit. Not an `Exception`, so that a parser's `except Exception` does not swallow it."""


class TimeLimit:
    """Limits calls to `limit_s` of CPU time. A context manager for the main thread only (else `RuntimeError`). Uses SIGALRM."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._share = 0.0  # of the limit for which the timer is set; 0: it is not set
        self._calling = False
        self._alarms = 0  # since the call began
        self._first_s = 0.0  # CPU time at the first of them

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a time limit works in the main thread only")
        self._former = signal.signal(signal.SIGALRM, self._alarm)
        return self

    def __exit__(self, *_: object) -> None:
        self.rest()
        signal.signal(signal.SIGALRM, self._former)

    def call(self, function: Callable[[], T], share: float = 1.0) -> T:
        """Return the result of `function`, within this share of the limit. Raises `Overrun`, and its exceptions.

        Alarms go on after it, until `rest`.
        """
        if share != self._share:
            self._set(share)
        try:
            self._alarms = 0
            self._calling = True
            return function()
        finally:
            self._calling = False  # inline, so that no alarm comes between the end of the call and this

    def rest(self) -> None:
        """Stop the alarms until the next call. Needed before a fork and before calls of the system that alarms disturb."""
        self._set(0.0)

    def _set(self, share: float) -> None:
        self._share = share
        alarm_s = self.limit_s * share / _ALARMS
        signal.setitimer(signal.ITIMER_REAL, alarm_s, alarm_s)

    def _alarm(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._calling:
            return
        now_s = time.thread_time()
        self._alarms += 1
        if self._alarms == 1:
            self._first_s = now_s
        if now_s - self._first_s >= self.limit_s * self._share * _NEARLY or self._alarms >= PATIENCE * _ALARMS:
            raise Overrun
