"""Budget of scan pauses: how long connection attempts may pause scanning, and how long each may take. Pure.

While scanning is paused, every advertisement is lost: attempts must not cost more than this, however often they are repeated.
"""

from collections import deque
from dataclasses import dataclass

WINDOW_S = 60.0
DEVICE_PAUSE_S = 5.0
"""Longest total pause for one device within `WINDOW_S`."""
TOTAL_PAUSE_S = 10.0
"""Longest total pause for all devices within `WINDOW_S`. With the scanner's own stops and starts it stays below 20 %."""
SHORTEST_PAUSE_S = 1.0
"""An attempt that may pause for less than this is postponed, because it would hardly succeed."""
RESERVED_S = 4.0
"""Part of the total that is reserved for devices whose last attempt succeeded."""
SPREAD_S = 5.0
"""Devices that wait for the budget retry at a random time within this interval, so that each gets its turn."""
_COUNTED_AT_LEAST_S = 0.1
_PARTS = (1, 2, 4, 4)


@dataclass(slots=True)
class _Pause:
    address: str
    began_s: float
    ended_s: float | None = None

    def until_s(self, now_s: float) -> float:
        """Return the end, or `now_s` while it lasts. A minimum length bounds the number of pauses."""
        return max(now_s if self.ended_s is None else self.ended_s, self.began_s + _COUNTED_AT_LEAST_S)


class PauseBudget:
    """Pauses of the last `WINDOW_S`, for all devices of an adapter."""

    def __init__(self) -> None:
        self._pauses: deque[_Pause] = deque()

    def began(self, address: str, now_s: float) -> _Pause:
        """Note that scanning stops for an attempt to connect to a device. Pass the result to `ended`."""
        pause = _Pause(address, now_s)
        self._pauses.append(pause)
        return pause

    @staticmethod
    def ended(pause: _Pause, now_s: float) -> None:
        """Note that scanning goes on."""
        pause.ended_s = now_s

    def left_s(self, address: str, now_s: float, *, failed: bool) -> float:
        """Return how long an attempt that begins now may pause scanning. `failed`: the device's last attempt failed."""
        self._forget(now_s)
        mine = [each for each in self._pauses if each.address == address]
        return max(0.0, min(DEVICE_PAUSE_S - _used_s(mine, now_s), _total_s(failed=failed) - _used_s(self._pauses, now_s)))

    def wait_s(self, address: str, now_s: float, *, failed: bool) -> float:
        """Return the time until an attempt may begin if no other begins before; 0 for at once."""
        self._forget(now_s)
        mine = [each for each in self._pauses if each.address == address]
        return max(_room_in_s(mine, DEVICE_PAUSE_S, now_s), _room_in_s(self._pauses, _total_s(failed=failed), now_s))

    def _forget(self, now_s: float) -> None:
        while self._pauses and self._pauses[0].until_s(now_s) <= now_s - WINDOW_S:
            self._pauses.popleft()


def attempt_s(longest_s: float, failures: int) -> float:
    """Return an attempt's time limit after `failures` in a row. Every fourth has `longest_s`, for the sake of slow devices."""
    return longest_s / _PARTS[failures % len(_PARTS)]


def _total_s(*, failed: bool) -> float:
    return TOTAL_PAUSE_S - RESERVED_S if failed else TOTAL_PAUSE_S


def _used_s(pauses: deque[_Pause] | list[_Pause], now_s: float) -> float:
    return sum(each.until_s(now_s) - max(each.began_s, now_s - WINDOW_S) for each in pauses)


def _room_in_s(pauses: deque[_Pause] | list[_Pause], budget_s: float, now_s: float) -> float:
    """Return the time until enough of the oldest pauses has left the window."""
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
