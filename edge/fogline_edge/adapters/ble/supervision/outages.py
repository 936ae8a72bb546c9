"""The times in which the gateway could not scan, for `fogline-edge status`: the present one, and the last ones. Pure."""

from collections.abc import Sequence

import msgspec

from fogline_edge.adapters.ble.supervision.bluez_state import RadioPhase

KEPT = 5


class RadioOutage(msgspec.Struct, frozen=True):
    """A time without scanning. `since`: its begin (RFC 3339). `lasted_s`: None while it lasts.

    `problem`: the fault in one line. If it changed, the faults in the order of their begin.
    """

    since: str
    problem: str
    lasted_s: float | None = None


class OutageLog:
    """Follows the problem of the supervisor. `initial`: the one before the start, which is none. `former`: of earlier runs."""

    def __init__(self, initial: str | None, former: Sequence[RadioOutage] = ()) -> None:
        self.ended = tuple(former)[-KEPT:]
        self.present: RadioOutage | None = None
        self._initial = initial
        self._began_s = 0.0
        self._by_phase: dict[RadioPhase, str] = {}

    def observe(self, problem: str | None, phase: RadioPhase, now: str, now_s: float) -> None:
        """Take in the present problem. `now`: the wall clock (RFC 3339). `now_s`: a monotonic clock."""
        if problem is not None and problem != self._initial:
            if self.present is None:
                self._began_s, self._by_phase = now_s, {}
                self.present = RadioOutage(now, problem)
            if problem not in self._by_phase.values():
                self._by_phase[phase] = problem
                self.present = RadioOutage(self.present.since, "; then: ".join(self._by_phase.values()))
        elif problem is None and self.present is not None:
            over = msgspec.structs.replace(self.present, lasted_s=round(now_s - self._began_s, 1))
            self.ended, self.present = (*self.ended, over)[-KEPT:], None
