"""Throttles repeated log lines: librdkafka logs twenty times a second that a broker does not answer."""

import logging
import re
import time
from collections.abc import Callable

SILENCE_S = 30.0
MAX_LINES = 256
"""Largest number of remembered lines. Beyond it the filter forgets all of them, and each may be logged again at once."""
_LIBRDKAFKA = re.compile(r"\(after \d+ms[^)]*\)|, \d+ identical error\(s\) suppressed")


class LogThrottle(logging.Filter):
    """Passes a line once in `SILENCE_S`, with the count of suppressed copies. Copies may differ in what matches `variable`.

    `bounded`: no more than `MAX_LINES` different ones pass in that time either, because strangers choose which there are.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, variable: re.Pattern[str] = _LIBRDKAFKA, *, bounded: bool = False
    ) -> None:
        super().__init__()
        self._bounded = bounded
        self._clock = clock
        self._variable = variable
        self._passed: dict[tuple[int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        message, now = record.getMessage(), self._clock()
        key = record.levelno, self._variable.sub("", message)
        at, suppressed = self._passed.get(key, (-SILENCE_S, 0))
        if now - at < SILENCE_S:
            self._passed[key] = at, suppressed + 1
            return False
        if key not in self._passed and len(self._passed) >= MAX_LINES:
            if self._bounded and now - min(at for at, _ in self._passed.values()) < SILENCE_S:
                return False
            self._passed.clear()
        self._passed[key] = now, 0
        if suppressed:
            record.msg, record.args = f"{message} ({suppressed} more like this)", ()
        return True
