"""How much there may be in a second: token buckets, and one of them for each device. Pure, and bounded itself."""

from collections import OrderedDict
from collections.abc import Hashable

LEAST_PAUSE_S = 0.05
"""A device that is too fast is paused for at least so long, if its bucket fills in more: a pause costs more than a packet."""
MAX_DEVICES = 10_000


class Bucket:
    """Holds up to `burst` tokens; `rate_s` come in a second. All times are of one clock that never goes back."""

    __slots__ = ("_at_s", "_tokens", "burst", "rate_s")

    def __init__(self, rate_s: float, burst: float, now_s: float) -> None:
        self.rate_s = rate_s
        self.burst = burst
        self._tokens = burst
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Take one token, if there is one."""
        tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_s)
        self._at_s = now_s
        self._tokens = tokens - 1 if tokens >= 1 else tokens
        return tokens >= 1

    def pay(self, now_s: float, tokens: float = 1) -> float:
        """Take tokens, on credit if there are too few. Returns for how long nothing more may come, in seconds."""
        self._tokens = left = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_s) - tokens
        self._at_s = now_s
        if left >= 0:
            return 0.0
        return max(-left / self.rate_s, min(LEAST_PAUSE_S, self.burst / self.rate_s / 2))

    def owed_s(self, now_s: float) -> float:
        """How long until what was taken on credit is paid; 0 if nothing is."""
        return max(0.0, -self._tokens / self.rate_s - (now_s - self._at_s))


class DeviceRates:
    """A bucket for each device. The latest `MAX_DEVICES` are remembered; whoever is forgotten starts with a full one."""

    def __init__(self, rate_s: float, burst: int) -> None:
        self._each = rate_s, burst
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def bucket(self, device: Hashable, now_s: float) -> Bucket:
        """The bucket of a device. It may be held on to for as long as the device sends."""
        bucket = self._buckets.get(device)
        if bucket is not None:
            self._buckets.move_to_end(device)
            return bucket
        if len(self._buckets) >= MAX_DEVICES:
            self._buckets.popitem(last=False)
        bucket = self._buckets[device] = Bucket(*self._each, now_s)
        return bucket
