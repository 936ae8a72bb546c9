"""Budget of connection attempts: for how long they may pause scanning, and how long each may take. Pure.

While scanning is paused, every advertisement is lost. A listed device that cannot be connected to must not cost more of them
than the budget, however often it is tried. Times are seconds of a clock that never jumps.
"""

from collections import deque
from dataclasses import dataclass

WINDOW_S = 60.0
DEVICE_PAUSE_S = 5.0
"""The longest that attempts of one device pause scanning within `WINDOW_S`."""
TOTAL_PAUSE_S = 10.0
"""The same of all devices together. With the time that a scanner takes to stop and to start it stays below 20 %."""
SHORTEST_PAUSE_S = 1.0
"""An attempt that may pause for less than this is put off: it would hardly succeed."""
RESERVED_S = 4.0
"""Part of the total that devices whose last attempt failed leave to the others."""
SPREAD_S = 5.0
"""Those that wait for the budget come back within so long of each other, in random order, so that each gets its turn."""
_COUNTED_AT_LEAST_S = 0.1
_PARTS = (1, 2, 4, 4)


@dataclass(slots=True)
class _Pause:
    """One pause; `ended_s` is `None` while it lasts."""

    address: str
    began_s: float
    ended_s: float | None = None

    def until_s(self, now_s: float) -> float:
        """Its end so far; no pause counts as shorter than the least, so that their number stays bounded."""
        return max(now_s if self.ended_s is None else self.ended_s, self.began_s + _COUNTED_AT_LEAST_S)


class Airtime:
    """Pauses of the last `WINDOW_S`, for all devices of an adapter."""

    def __init__(self) -> None:
        self._pauses: deque[_Pause] = deque()

    def began(self, address: str, now_s: float) -> _Pause:
        """Scanning stops for an attempt to connect to this device. The result is for `ended`."""
        pause = _Pause(address, now_s)
        self._pauses.append(pause)
        return pause

    @staticmethod
    def ended(pause: _Pause, now_s: float) -> None:
        """Scanning goes on."""
        pause.ended_s = now_s

    def left_s(self, address: str, now_s: float, *, failed: bool) -> float:
        """For how long an attempt that begins now may pause scanning. `failed`: the device's last attempt did."""
        self._forget(now_s)
        mine = [each for each in self._pauses if each.address == address]
        return max(0.0, min(DEVICE_PAUSE_S - _used_s(mine, now_s), _total_s(failed=failed) - _used_s(self._pauses, now_s)))

    def wait_s(self, address: str, now_s: float, *, failed: bool) -> float:
        """After how long an attempt may begin, if none begins before; 0 for at once."""
        self._forget(now_s)
        mine = [each for each in self._pauses if each.address == address]
        return max(_room_in_s(mine, DEVICE_PAUSE_S, now_s), _room_in_s(self._pauses, _total_s(failed=failed), now_s))

    def _forget(self, now_s: float) -> None:
        while self._pauses and self._pauses[0].until_s(now_s) <= now_s - WINDOW_S:
            self._pauses.popleft()


def attempt_s(longest_s: float, failures: int) -> float:
    """How long an attempt may take after so many failures in a row: a half, then a quarter, every fourth the whole time.

    A slow device gets its chance that way, and one that is half dead does not hold up the others.
    """
    return longest_s / _PARTS[failures % len(_PARTS)]


def _total_s(*, failed: bool) -> float:
    return TOTAL_PAUSE_S - RESERVED_S if failed else TOTAL_PAUSE_S


def _used_s(pauses: deque[_Pause] | list[_Pause], now_s: float) -> float:
    return sum(each.until_s(now_s) - max(each.began_s, now_s - WINDOW_S) for each in pauses)


def _room_in_s(pauses: deque[_Pause] | list[_Pause], budget_s: float, now_s: float) -> float:
    """When enough of the oldest pauses has left the window."""
    over_s = _used_s(pauses, now_s) - (budget_s - SHORTEST_PAUSE_S)
    for each in pauses:
        if over_s <= 0:
            break
        began_s = max(each.began_s, now_s - WINDOW_S)
        length_s = each.until_s(now_s) - began_s
        if length_s >= over_s:
            return began_s + over_s + WINDOW_S - now_s
        over_s -= length_s
    return 0.0
