"""Limits the rate at which gateways connect, after all of them lost their connections at once. Pure."""

from fogline.process.rates import Bucket

RETRY_S = 2.0
"""The shortest time after which a gateway may come back."""
SPREAD_S = 60.0
"""Gateways that have to wait are spread over this time."""


class HelloPacer:
    """Admits `rate_s` gateways a second, and up to two seconds' worth of them in advance."""

    def __init__(self, rate_s: float, now_s: float) -> None:
        self._admitted = Bucket(rate_s, rate_s, now_s)
        self._retries = Bucket(rate_s, 0.0, now_s)

    def wait_s(self, now_s: float) -> float:
        """Return 0 to admit one more gateway, else the seconds after which it may come back."""
        if self._admitted.owed_s(now_s) > RETRY_S:
            return RETRY_S + self._retries.pay(now_s) % SPREAD_S
        self._admitted.pay(now_s)
        return 0.0
