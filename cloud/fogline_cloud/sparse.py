"""Logging that does not repeat itself: librdkafka says twenty times a second that a broker does not answer."""

import logging
import re
import time
from collections.abc import Callable

SILENCE_S = 30.0
MOST = 256
"""Kinds of lines that are remembered. Beyond it all of them are forgotten, and each may be logged again at once."""
_COUNTED = re.compile(r"\(after \d+ms[^)]*\)|, \d+ identical error\(s\) suppressed")


class Sparse(logging.Filter):
    """Lets a line through once in `SILENCE_S`, with the count of those held back. Lines may differ in a duration."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        message, now = record.getMessage(), self._clock()
        key = record.levelno, _COUNTED.sub("", message)
        at, held = self._said.get(key, (-SILENCE_S, 0))
        if now - at < SILENCE_S:
            self._said[key] = at, held + 1
            return False
        if len(self._said) >= MOST:
            self._said.clear()
        self._said[key] = now, 0
        if held:
            record.msg, record.args = f"{message} ({held} more like this)", ()
        return True
