"""The machine's clocks: the one that people set, and the one since its boot that nobody can set.

Deadlines and ages are reckoned in the latter; the former is only written down. Whether it was right is told by what it
shows: before `CLOCK_IS_SET_NS` it has not been set since the machine started. The kernel's own word (adjtimex) is not asked:
on many machines the host keeps the clock right, and the kernel calls it unsynchronised for ever.
"""

import time
import uuid
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from fogline.codec import Beacon
from fogline.event import TimeQuality, rfc3339

CLOCK_IS_SET_NS = 1_735_689_600_000_000_000
"""2025-01-01: a clock before this has not been set since the machine started."""


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


class SystemClock:
    """The machine's own."""

    def time_ns(self) -> int:
        """As `Clock.time_ns`."""
        return time.time_ns()

    def beacon(self) -> Beacon:
        """As `Clock.beacon`."""
        return Beacon(boot_id(), int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000))


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
    now = moment_at(clock.time_ns())
    return now if now.synced else now._replace(beacon=clock.beacon())


def moment_at(time_ns: int) -> Moment:
    """When the wall clock showed this."""
    return Moment(time_ns, rfc3339(time_ns), time_ns >= CLOCK_IS_SET_NS)


def time_quality(time_ns: int) -> TimeQuality:
    """Whether the clock had been set when it showed this."""
    return TimeQuality.SYNCED if time_ns >= CLOCK_IS_SET_NS else TimeQuality.UNSYNCED
