"""Rate limits: token buckets, and one bucket for each device. Pure; memory is bounded."""

from collections import OrderedDict
from collections.abc import Hashable

LEAST_PAUSE_S = 0.05
"""Shortest pause of a device that is too fast, if its bucket takes longer to fill: a pause costs more than a packet."""
MAX_DEVICES = 10_000


class Bucket:
    """A token bucket of `burst` tokens that gets `rate_s` tokens a second. All times are of one monotonic clock."""

    __slots__ = ("_at_s", "_tokens", "burst", "rate_s")

    def __init__(self, rate_s: float, burst: float, now_s: float) -> None:
        self.rate_s = rate_s
        self.burst = burst
        self._tokens = burst
        self._at_s = now_s

    def take(self, now_s: float) -> bool:
        """Take one token. Returns False if there is none."""
        tokens = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_s)
        self._at_s = now_s
        self._tokens = tokens - 1 if tokens >= 1 else tokens
        return tokens >= 1

    def pay(self, now_s: float, tokens: float = 1) -> float:
        """Take tokens, on credit if there are too few. Returns the pause in seconds that the sender must make."""
        self._tokens = left = min(self.burst, self._tokens + (now_s - self._at_s) * self.rate_s) - tokens
        self._at_s = now_s
        if left >= 0:
            return 0.0
        return max(-left / self.rate_s, min(LEAST_PAUSE_S, self.burst / self.rate_s / 2))

    def owed_s(self, now_s: float) -> float:
        """Return the seconds until the tokens taken on credit are paid; 0 if there are none."""
        return max(0.0, -self._tokens / self.rate_s - (now_s - self._at_s))


class DeviceRates:
    """A bucket for each of the latest `MAX_DEVICES` devices. A device beyond that starts again with a full bucket."""

    def __init__(self, rate_s: float, burst: int) -> None:
        self._each = rate_s, burst
        self._buckets: OrderedDict[Hashable, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def bucket(self, device: Hashable, now_s: float) -> Bucket:
        """Return the bucket of a device. The caller may keep it while the device is connected."""
        bucket = self._buckets.get(device)
        if bucket is not None:
            self._buckets.move_to_end(device)
            return bucket
        if len(self._buckets) >= MAX_DEVICES:
            self._buckets.popitem(last=False)
        bucket = self._buckets[device] = Bucket(*self._each, now_s)
        return bucket
