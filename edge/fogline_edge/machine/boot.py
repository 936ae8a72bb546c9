"""The machine's clocks: the wall clock, which anybody may set, and the clock since boot, which nobody can set.

Deadlines and ages use the clock since boot. The wall clock only goes into records, with a flag for whether it was right. A
machine without a battery starts with a wrong time that may look plausible (fake-hwclock). So the wall clock is right only with
evidence: the kernel or systemd-timesyncd reports that it is synchronized, or the bridge's clock agrees with it.
"""

import time
import uuid
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from fogline.events.codec import Beacon
from fogline.events.event import TimeQuality, rfc3339
from fogline.process.kernel_clock import machine_is_synchronized

CLOCK_IS_SET_NS = 1_735_689_600_000_000_000
"""2025-01-01: a clock before this has not been set since the machine started."""
AGREES_NS = 60_000_000_000
"""The largest difference of two clocks that are both right, including the travel time of a message, in nanoseconds."""


@cache
def boot_id() -> str:
    """Return the kernel's id of this boot, or an id of this process if the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return str(uuid.uuid4())


class Clock(Protocol):
    """The clocks' interface; tests have an implementation of their own."""

    def time_ns(self) -> int:
        """Return the wall clock in nanoseconds since 1970. It may jump by years in either direction."""

    def beacon(self) -> Beacon:
        """Return the boot id and the milliseconds since boot, including sleep. It never jumps."""

    def is_right(self) -> bool:
        """Return True if there is evidence that the wall clock is right."""

    def compare(self, time_ns: int) -> bool:
        """Compare the wall clock with the bridge's. Returns True if they agree, which is evidence for this boot."""


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._right_ns: int | None = None

    def time_ns(self) -> int:
        """See `Clock.time_ns`."""
        return time.time_ns()

    def beacon(self) -> Beacon:
        """See `Clock.beacon`."""
        return Beacon(boot_id(), int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))

    def is_right(self) -> bool:
        """See `Clock.is_right`. Evidence is valid until somebody sets the clock to another time."""
        now_ns = self._boot_time_ns()
        if self._right_ns is None or abs(now_ns - self._right_ns) > AGREES_NS:
            self._right_ns = now_ns if machine_is_synchronized() else None
        return self._right_ns is not None

    def compare(self, time_ns: int) -> bool:
        """See `Clock.compare`."""
        agrees = abs(self.time_ns() - time_ns) <= AGREES_NS
        if agrees:
            self._right_ns = self._boot_time_ns()
        return agrees

    def _boot_time_ns(self) -> int:
        """Return the wall-clock time of the boot, which changes only when somebody sets the clock."""
        return self.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


SYSTEM = SystemClock()
beacon = SYSTEM.beacon
"""The machine's own beacon."""


class Moment(NamedTuple):
    """A time. `text`: the wall clock in RFC 3339. `beacon`: the clock since boot, if the wall clock is not `synced`."""

    time_ns: int
    text: str
    synced: bool
    beacon: Beacon | None = None


def moment(clock: Clock) -> Moment:
    """Return the present time."""
    time_ns = clock.time_ns()
    synced = time_ns >= CLOCK_IS_SET_NS and clock.is_right()
    return Moment(time_ns, rfc3339(time_ns), synced, None if synced else clock.beacon())


def time_of_day(when: Moment) -> dict[str, int]:
    """Return the local hour, minute and day of the week (Monday is 1); nothing if the clock is not known to be right."""
    if not when.synced:
        return {}
    local = time.localtime(when.time_ns // 1_000_000_000)
    return {"hour": local.tm_hour, "minute": local.tm_min, "weekday": local.tm_wday + 1}


def time_quality(clock: Clock) -> TimeQuality:
    """Return `SYNCED` if the wall clock is known to be right now."""
    return TimeQuality.SYNCED if moment(clock).synced else TimeQuality.UNSYNCED
