"""A limit on the time of one call, for code that may never come back: `setitimer` in the main thread.

The limit is on CPU time: a machine that is busy with other things must not make a slow parser out of a good one. A call
that uses little, because it waits for something, is ended too, `PATIENCE` times as late.

The alarm repeats, so that a parser which swallows it meets it again. What it cannot do: interrupt one long call into
C that never returns to the interpreter (some regular expressions, a codec); that is stopped when it returns.
"""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeVar

T = TypeVar("T")

PATIENCE = 20
"""How many times the limit may pass on the clock, whatever CPU time was used."""
_NEARLY = 0.9
"""The share of the limit that counts as all of it: an alarm comes a little before the CPU clock says so."""


class Overrun(BaseException):
    """The time was over. Not an `Exception`, so that a parser's `except Exception` does not swallow it."""


class TimeLimit:
    """Calls with at most `limit_s` seconds of CPU time each. A context manager: it holds SIGALRM of this process meanwhile.

    Only in the main thread (`RuntimeError` elsewhere): Python runs signal handlers nowhere else.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
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

    def call(self, function: Callable[[], T]) -> T:
        """The result of `function`. Raises `Overrun`, and whatever `function` raises."""
        try:
            self._alarms = 0
            self._began_s = time.thread_time()
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._limit_s, self._limit_s)
            return function()
        finally:
            self._armed = False  # here and not in a function of its own: no alarm can come between the call's end and this
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _alarm(self, _signal: int, _frame: FrameType | None) -> None:
        self._alarms += 1
        used_s = time.thread_time() - self._began_s
        if self._armed and (used_s >= self._limit_s * _NEARLY or self._alarms >= PATIENCE):
            raise Overrun
