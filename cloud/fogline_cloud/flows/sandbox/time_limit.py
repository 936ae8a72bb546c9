"""A time limit for calls to foreign code, by timers of the main thread.

An alarm (SIGALRM) raises `Overrun` inside the call. It limits CPU time, so that a good parser does not fail on a busy machine;
a call that waits ends after `PATIENCE` limits of the clock. The alarm repeats, in case a parser swallows it. Alarms come twice
in a limit, whichever call runs, because a timer for each call costs as much as a small parser. So a call is ended after one
limit at least, and after one and a half at most.

Python runs a handler only between two of its own instructions, so the alarm cannot interrupt native code. There two more timers
end the process, one of CPU time (SIGPROF), one of the clock (`faulthandler`). Each alarm that is handled sets them anew.
"""

import faulthandler
import os
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
_NATIVE_LIMITS = 2  # number of limits of CPU time without a handled alarm, before the process ends
_NATIVE_SLACK_S = 0.5  # added to them: collecting garbage handles no alarm either
_SILENT_LIMITS = PATIENCE + 2  # number of limits by the clock without a handled alarm, before the process ends
_SILENT_SLACK_S = 5.0  # added to them
_STDERR = 2


class Overrun(BaseException):
    """The call exceeded its limit. Not an `Exception`, so that a parser's `except Exception` does not swallow it."""


class TimeLimit:
    """Limits calls to `limit_s` of CPU time. A context manager for the main thread only (else `RuntimeError`).

    Uses SIGALRM, SIGPROF and `faulthandler.dump_traceback_later`. In a forked child, the parent must watch the clock.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.silence_s = _SILENT_LIMITS * limit_s + _SILENT_SLACK_S  # by the clock, after which a call in native code is ended
        self._process = os.getpid()
        self._share = 0.0  # of the limit for which the timers are set; 0: they are not set
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
        """Stop the timers until the next call. Needed before a fork and before calls of the system that alarms disturb."""
        self._set(0.0)

    def _set(self, share: float) -> None:
        self._share = share
        alarm_s = self.limit_s * share / _ALARMS
        signal.setitimer(signal.ITIMER_REAL, alarm_s, alarm_s)
        self._bound_native_code()

    def _bound_native_code(self) -> None:
        left_s = _NATIVE_LIMITS * self.limit_s * self._share + _NATIVE_SLACK_S if self._share else 0.0
        signal.setitimer(signal.ITIMER_PROF, left_s)
        if os.getpid() != self._process:
            return  # a thread that only the parent has may hold the lock of `faulthandler` for ever
        if self._share:
            faulthandler.dump_traceback_later(self.silence_s, exit=True, file=_STDERR)
        else:
            faulthandler.cancel_dump_traceback_later()

    def _alarm(self, _signal: int, _frame: FrameType | None) -> None:
        self._bound_native_code()
        if not self._calling:
            return
        now_s = time.thread_time()
        self._alarms += 1
        if self._alarms == 1:
            self._first_s = now_s
        if now_s - self._first_s >= self.limit_s * self._share * _NEARLY or self._alarms >= PATIENCE * _ALARMS:
            raise Overrun
