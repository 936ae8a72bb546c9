"""The wall clock, and whether the kernel and systemd-timesyncd say that it is synchronized."""

import ctypes
import sys
import time
from functools import cache
from pathlib import Path

TIMESYNCD = Path("/run/systemd/timesync/synchronized")
"""systemd-timesyncd creates this file when it has set the clock in this boot."""
_TIME_ERROR = 5
_TIMEX_BYTES = 512  # larger than `struct timex` on any architecture


def wall_clock_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def machine_is_synchronized() -> bool:
    """Return True if the kernel (adjtimex, cleared STA_UNSYNC) or systemd-timesyncd reports a synchronized clock."""
    if sys.platform != "linux":
        return False
    state = _libc().adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return 0 <= state < _TIME_ERROR or TIMESYNCD.exists()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
