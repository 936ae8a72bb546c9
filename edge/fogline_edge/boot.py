"""The machine's clocks: the wall clock, which anybody may set, and the clock since boot, which nobody can set.

Deadlines and ages use the clock since boot. The wall clock is only written down, with the word whether it was right. A
machine without a battery starts in 1970, or (fake-hwclock) at its last shutdown, and shows a wrong time that looks right.
So the wall clock counts as right only when there is evidence: the kernel or systemd-timesyncd says that it is
synchronized, or the bridge's clock agrees with it.
"""

import ctypes
import sys
import time
import uuid
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from fogline.codec import Beacon
from fogline.event import TimeQuality, rfc3339

CLOCK_IS_SET_NS = 1_735_689_600_000_000_000
"""2025-01-01: a clock before this has not been set since the machine started."""
AGREES_NS = 60_000_000_000
"""The most by which two clocks that are both right may differ, a message's way between them included."""
TIMESYNCD = Path("/run/systemd/timesync/synchronized")
"""systemd-timesyncd makes this file when it has set the clock in this boot."""
_TIME_ERROR = 5
_TIMEX_BYTES = 512
"""More than `struct timex` has on any architecture."""


@cache
def boot_id() -> str:
    """The kernel's name of this boot; a name of this process's own where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(uuid.uuid4())


class Clock(Protocol):
    """The clocks, as whoever needs them sees them; tests have one of their own."""

    def time_ns(self) -> int:
        """The wall clock, nanoseconds since 1970. It may jump, either way, by years."""

    def beacon(self) -> Beacon:
        """Boot id and the milliseconds since the boot, sleep included. It never jumps."""

    def is_right(self) -> bool:
        """Return True if there is evidence that the wall clock is right."""

    def compare(self, time_ns: int) -> bool:
        """Hold the wall clock against the bridge's, and return True if they agree: that is evidence for this boot."""


class SystemClock:
    """The machine's own."""

    def __init__(self) -> None:
        self._right_ns: int | None = None

    def time_ns(self) -> int:
        """As `Clock.time_ns`."""
        return time.time_ns()

    def beacon(self) -> Beacon:
        """As `Clock.beacon`."""
        return Beacon(boot_id(), int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))

    def is_right(self) -> bool:
        """As `Clock.is_right`. Evidence holds until the clock is set to another time."""
        now_ns = self._boot_time_ns()
        if self._right_ns is None or abs(now_ns - self._right_ns) > AGREES_NS:
            self._right_ns = now_ns if machine_is_synchronized() else None
        return self._right_ns is not None

    def compare(self, time_ns: int) -> bool:
        """As `Clock.compare`."""
        agrees = abs(self.time_ns() - time_ns) <= AGREES_NS
        if agrees:
            self._right_ns = self._boot_time_ns()
        return agrees

    def _boot_time_ns(self) -> int:
        """The boot's moment by the wall clock, which changes when somebody sets that clock."""
        return self.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def machine_is_synchronized() -> bool:
    """Return True if the kernel (adjtimex, cleared STA_UNSYNC) or systemd-timesyncd says that the clock is synchronized."""
    if sys.platform != "linux":
        return False
    state = _libc().adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return 0 <= state < _TIME_ERROR or TIMESYNCD.exists()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


SYSTEM = SystemClock()


def beacon() -> Beacon:
    """The machine's own beacon, now."""
    return SYSTEM.beacon()


class Moment(NamedTuple):
    """When something came. `text`: the wall clock in RFC 3339; `beacon`: the other one, where the first was not `synced`."""

    time_ns: int
    text: str
    synced: bool
    beacon: Beacon | None = None


def moment(clock: Clock) -> Moment:
    """Now."""
    time_ns = clock.time_ns()
    synced = time_ns >= CLOCK_IS_SET_NS and clock.is_right()
    return Moment(time_ns, rfc3339(time_ns), synced, None if synced else clock.beacon())


def time_quality(clock: Clock) -> TimeQuality:
    """Whether the clock is known to be right now."""
    return TimeQuality.SYNCED if moment(clock).synced else TimeQuality.UNSYNCED
