"""A limit on the time of one call, for code that may never come back: `setitimer` in the main thread.

The alarm repeats, so that a parser which swallows it meets it again. What it cannot do: interrupt one long call into
C that never returns to the interpreter (some regular expressions, a codec); that is stopped when it returns.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeVar

T = TypeVar("T")


class Overrun(BaseException):
    """The time was over. Not an `Exception`, so that a parser's `except Exception` does not swallow it."""


class TimeLimit:
    """Calls with at most `limit_s` seconds each. A context manager: it holds SIGALRM of this process meanwhile.

    Only in the main thread (`RuntimeError` elsewhere): Python runs signal handlers nowhere else.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._armed = False

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
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, self._limit_s, self._limit_s)
            return function()
        finally:
            self._armed = False  # here and not in a function of its own: no alarm can come between the call's end and this
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _alarm(self, _signal: int, _frame: FrameType | None) -> None:
        if self._armed:
            raise Overrun
