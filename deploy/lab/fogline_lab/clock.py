"""Clocks that a test moves: a machine's wall clock and time since boot, and the clock of an event loop."""

import asyncio
from typing import cast

from fogline.events.codec import Beacon
from fogline_edge.machine.boot import SystemClock

RIGHT_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000
YEAR_NS = 365 * 86_400 * SECOND_NS


class FakeClock:
    """Implements `fogline_edge.machine.boot.Clock`. `wall_ns`: the wall clock, which a test may set, as NTP does.

    `synchronized`: the kernel reports that the wall clock is right.
    """

    def __init__(self, wall_ns: int = RIGHT_NS, *, synchronized: bool = True) -> None:
        self.wall_ns = wall_ns
        self.synchronized = synchronized
        self._boots = 1
        self._boottime_ms = 0

    def time_ns(self) -> int:
        """See `Clock.time_ns`."""
        return self.wall_ns

    def beacon(self) -> Beacon:
        """See `Clock.beacon`."""
        return Beacon(f"boot-{self._boots}", self._boottime_ms)

    def is_right(self) -> bool:
        """See `Clock.is_right`."""
        return self.synchronized

    def compare(self, time_ns: int) -> bool:
        """See `Clock.compare`."""
        agrees = abs(self.wall_ns - time_ns) <= 60 * SECOND_NS
        self.synchronized = self.synchronized or agrees
        return agrees

    def go_on(self, seconds: int) -> None:
        """Advance both clocks."""
        self.wall_ns += seconds * SECOND_NS
        self._boottime_ms += seconds * 1000

    def reboot(self, wall_ns: int) -> None:
        """Restart the machine after an unknown time; its wall clock shows `wall_ns`."""
        self._boots += 1
        self._boottime_ms = 0
        self.wall_ns = wall_ns


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop with real sockets whose time passes as usual, and further whenever a test calls `pass_time`."""

    ahead_s = 0.0

    def time(self) -> float:
        """Return the time of timers and deadlines, in seconds."""
        return super().time() + self.ahead_s

    def go_on(self, seconds: float) -> None:
        """Advance the clock. Timers that are due by then run in the loop's next iteration."""
        self.ahead_s += seconds


def pass_time(seconds: float) -> None:
    """Advance the clock of the running loop, so that a test need not wait for a timer. Limits can be those of production."""
    cast("MovedLoop", asyncio.get_running_loop()).go_on(seconds)


class LoopClock(SystemClock):
    """The machine's own clocks, except that the time since boot advances with `pass_time` too, in a `MovedLoop`."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def beacon(self) -> Beacon:
        """See `Clock.beacon`."""
        now = super().beacon()
        ahead_s = self._loop.ahead_s if isinstance(self._loop, MovedLoop) else 0.0
        return Beacon(now.boot_id, now.boottime_ms + int(ahead_s * 1000))
