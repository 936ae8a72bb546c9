"""Clocks of a machine that a test sets: the wall clock and the time since boot."""

from fogline.codec import Beacon

RIGHT_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000
YEAR_NS = 365 * 86_400 * SECOND_NS


class FakeClock:
    """Implements `fogline_edge.boot.Clock`. `wall_ns`: the wall clock, which a test may set, as NTP does.

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
