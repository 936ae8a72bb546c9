"""Numbers the copies of each gateway's outbox, so that a gateway learns that a restored copy has replaced it. Pure.

The bridge gives a number to each copy that says hello without one: its time, and always more than the gateway's former numbers.
A backup holds no number, so the gateway that is restored from it gets a higher one than the gateway that was backed up. The
gateways keep their numbers; the bridge learns them again after a restart.
"""

from typing import NamedTuple

MAX_GATEWAYS = 10_000


class Copy(NamedTuple):
    """The number of a copy, and whether a newer copy has said hello."""

    number: int
    replaced: bool = False


class CopyNumbers:
    """The highest number of each gateway that has said hello; of the last `MAX_GATEWAYS`."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def judge(self, gateway: str, number: int, now_ms: int) -> Copy:
        """Judge the hello of a copy. `number`: its own, 0 if it has none yet."""
        known = self._newest.pop(gateway, 0)
        number = number or max(now_ms, known + 1)
        self._newest[gateway] = max(known, number)
        if len(self._newest) > MAX_GATEWAYS:
            del self._newest[next(iter(self._newest))]
        return Copy(number, replaced=number < known)
