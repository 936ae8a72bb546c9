"""Escalation ladder: the next remedy when a scanner receives nothing, or does not start. Pure; times are of a monotonic clock.

Its rungs are a new scanner, new clients, a power cycle of the adapter, and a report. Then it begins again, and each period is
twice as long as before. While a connection is alive, the radio works at least in part. Then the ladder tries new scanners
only, because a reset would end the connection. But if advertisers are near, a radio that receives none of them for two rungs
is deaf, and worth a reset.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

LONGEST_FACTOR = 48
"""The longest period, in first periods."""
_MOST_FAILURES = 3  # failed starts in a row after which the ladder ends connections too
_RUNGS_BESIDE_A_LINK = 2


class Rung(StrEnum):
    """One remedy. The value is its name in `Steps`."""

    NEW_SCANNER = "new_scanner"
    NEW_CLIENTS = "new_clients"
    POWER_CYCLE = "power_cycle"
    REPORT = "reported"


_LADDER = tuple(Rung)
ACTIONS = {
    Rung.NEW_SCANNER: "starting a new scanner",
    Rung.NEW_CLIENTS: "starting a new scanner, and connecting to all devices again",
    Rung.POWER_CYCLE: "switching the adapter off and on",
    Rung.REPORT: "trying again less often",
}


@dataclass(slots=True)
class Ladder:
    """State of the ladder. `silence_s`: the first period. `rung`: rungs taken in a row. `factor`: growth of the period."""

    silence_s: float
    rung: int = 0
    factor: int = 1
    _beside: int = 0
    _hurried: bool = False
    _device_silent: bool = False
    _near_s: float = -inf
    _links: dict[str, float] = field(default_factory=dict)

    @property
    def period_s(self) -> float:
        """Silence until the next rung. In the first round, later rungs come after half a period if that costs no connection."""
        hurried = self._hurried and self.rung and self.factor == 1
        return self.silence_s * self.factor / (2 if hurried else 1)

    def received(self, now_s: float) -> None:
        """Note an advertisement of any device."""
        self._device_silent, self._beside = False, 0
        if now_s - self._near_s > self.silence_s:
            self._near_s = -inf  # others were received meanwhile, so those that were near have left

    def near(self, now_s: float) -> None:
        """Note an advertisement of a device that advertises continuously. If it stops, the radio may be deaf."""
        self._near_s = now_s

    def link_alive(self, device: str, now_s: float, lasts_s: float = 0.0) -> None:
        """Note a sign of life of a connected device. It counts for `lasts_s`, but at least `silence_s`: the radio works."""
        self._links[device] = now_s + max(self.silence_s, lasts_s)

    def link_ended(self, device: str) -> None:
        """Note that the device is disconnected."""
        self._links.pop(device, None)

    def device_silent(self) -> None:
        """Note that a listed device has fallen silent. If the scanner receives others, only the device is at fault."""
        self._device_silent = True

    def reset(self) -> None:
        """Begin again at the first rung: the scanner works."""
        self.rung, self.factor = 0, 1

    def links_lost(self) -> None:
        """Begin again at the first rung: all connections are lost, and the cause is known."""
        self.reset()
        self._links.clear()

    def climb(self, now_s: float, start_failures: int) -> Rung:
        """Take the next rung. `start_failures`: scanners in a row that did not start."""
        is_near = self._near_s > -inf
        alive = start_failures < _MOST_FAILURES and any(now_s < until_s for until_s in self._links.values())
        self._hurried = is_near or not alive
        rung = self._beside_a_link(is_near=is_near) if alive else self._next()
        if rung in (Rung.NEW_CLIENTS, Rung.POWER_CYCLE):
            self._device_silent = False
            self._links.clear()
        if rung is Rung.POWER_CYCLE:
            self._near_s = -inf  # the same advertisers justify one power cycle
        if rung is Rung.REPORT:
            self._slow_down()
        return rung

    def _next(self) -> Rung:
        if self._beside:
            self._beside, self.factor = 0, 1
        rung = _LADDER[self.rung % len(_LADDER)]
        self.rung += 1
        return rung

    def _beside_a_link(self, *, is_near: bool) -> Rung:
        self._beside += 1
        if is_near and self._beside > _RUNGS_BESIDE_A_LINK:
            self.rung = _LADDER.index(Rung.POWER_CYCLE) + 1
            return Rung.POWER_CYCLE
        if self._beside > len(_LADDER):
            self._slow_down()
        was, self.rung = self.rung, 1
        if not (was and self._device_silent):
            return Rung.NEW_SCANNER
        self._beside, self.factor = 0, 1  # the connections after this are new ones
        return Rung.NEW_CLIENTS

    def _slow_down(self) -> None:
        self.factor = min(LONGEST_FACTOR, self.factor * 2)
