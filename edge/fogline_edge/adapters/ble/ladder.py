"""The ladder against silence: what to try next when a scanner hears nothing, or does not start. Pure.

Its rungs are a new scanner, new clients, the adapter off and on, and a report; then it begins again, and each period is twice
as long as before. While a link lives, the radio works at least in part, and only new scanners are tried: a reset would end the
link. But if advertisers are known to be near, a radio that hears none of them for two rungs is deaf, and worth a reset.

Times are seconds of a clock that never jumps.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

LONGEST_FACTOR = 48
"""The longest period is so many times the first one."""
_MOST_FAILURES = 3
"""So many starts in a row that fail are no accident: links may be ended for that."""
_RUNGS_BESIDE_A_LINK = 2


class Rung(StrEnum):
    """What is tried."""

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
    """`silence_s`: the first period. `rung`: how many were taken in a row. `factor`: how much longer the periods are by now."""

    silence_s: float
    rung: int = 0
    factor: int = 1
    _beside: int = 0
    _hurried: bool = False
    _missed: bool = False
    _near_s: float = -inf
    _links: dict[str, float] = field(default_factory=dict)

    @property
    def period_s(self) -> float:
        """How long silence lasts until the next rung.

        Half of a period after the first rung, while something may still be gained: advertisers that are near are heard within
        that, and where no link lives there is nothing to lose.
        """
        hurried = self._hurried and self.rung and self.factor == 1
        return self.silence_s * self.factor / (2 if hurried else 1)

    def heard(self, now_s: float) -> None:
        """An advertisement came."""
        self._missed, self._beside = False, 0
        if now_s - self._near_s > self.silence_s:
            self._near_s = -inf  # those that were near have left while others were heard

    def near(self, now_s: float) -> None:
        """The advertisement was of a device that advertises all the time."""
        self._near_s = now_s

    def link_lives(self, device: str, until_s: float) -> None:
        """The link to this device works, which is believed until then."""
        self._links[device] = until_s

    def link_ended(self, device: str) -> None:
        """It is not connected any more."""
        self._links.pop(device, None)

    def missed(self) -> None:
        """A device that is listed has fallen silent."""
        self._missed = True

    def down(self) -> None:
        """There is no trouble any more."""
        self.rung, self.factor = 0, 1

    def fall(self) -> None:
        """All links are lost, and what is wrong is known."""
        self.down()
        self._links.clear()

    def climb(self, now_s: float, start_failures: int) -> Rung:
        """The next rung, after so many scanners in a row that did not start."""
        is_near = self._near_s > -inf
        lives = start_failures < _MOST_FAILURES and any(now_s < until_s for until_s in self._links.values())
        self._hurried = is_near or not lives
        rung = self._beside_a_link(is_near=is_near) if lives else self._next()
        if rung in (Rung.NEW_CLIENTS, Rung.POWER_CYCLE):
            self._missed = False
            self._links.clear()
        if rung is Rung.POWER_CYCLE:
            self._near_s = -inf  # it is worth that once
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
        if not (was and self._missed):
            return Rung.NEW_SCANNER
        self._beside, self.factor = 0, 1  # its links will be new ones
        return Rung.NEW_CLIENTS

    def _slow_down(self) -> None:
        self.factor = min(LONGEST_FACTOR, self.factor * 2)
