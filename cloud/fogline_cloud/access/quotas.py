"""Measures what each peer does, over all of its connections, against its quota. Pure; memory is bounded."""

from collections import OrderedDict

from fogline.process.rates import Bucket
from fogline_cloud.access.access_file import Quota
from fogline_cloud.access.principal import Principal, PrincipalKind

MAX_PEERS = 10_000
"""Peers whose use is remembered. Beyond that, the one that connected longest ago begins anew."""
DEBT_S = 60.0
"""A peer may be this far behind its quota; it gets its credit late. Beyond that, its messages are refused."""
_Key = tuple[PrincipalKind, str]


class Use:
    """What one peer has used of its quota. Times are monotonic seconds."""

    def __init__(self, quota: Quota, now_s: float) -> None:
        self.quota = quota
        self._events = _bucket(quota.events_s, 1, now_s)
        self._bytes = _bucket(quota.bytes_s, 1, now_s)
        self._commands = _bucket(quota.commands_min, 60, now_s)

    def count(self, now_s: float, *, events: int = 0, size_bytes: int = 0, commands: int = 0) -> None:
        """Count a message that was received. A negative number takes back what was counted in vain."""
        for bucket, amount in ((self._events, events), (self._bytes, size_bytes), (self._commands, commands)):
            if bucket is not None and amount:
                bucket.pay(now_s, amount)

    def owed_s(self, now_s: float) -> float:
        """Return the seconds until the peer is within its quota again: so long it gets no new credit."""
        return max(
            (bucket.owed_s(now_s) for bucket in (self._events, self._bytes, self._commands) if bucket is not None), default=0.0
        )


class Quotas:
    """The use of all peers that have a quota."""

    def __init__(self) -> None:
        self._uses: OrderedDict[_Key, Use] = OrderedDict()

    def use(self, principal: Principal, quota: Quota | None, now_s: float) -> Use | None:
        """Return the use of a peer, None if it has no quota. A changed quota begins anew."""
        key = principal.kind, principal.name
        use = self._uses.get(key)
        if quota is None:
            return None
        if use is None or use.quota != quota:
            use = self._uses[key] = Use(quota, now_s)
        self._uses.move_to_end(key)
        if len(self._uses) > MAX_PEERS:
            self._uses.popitem(last=False)
        return use


def over_quota(principal: Principal, owed_s: float) -> str:
    """Return why a message of a peer over its quota is refused."""
    return f"{principal} is over its quota (bridge.access): again in {max(1.0, owed_s):.0f} s"


def _bucket(rate: float | None, per_s: float, now_s: float) -> Bucket | None:
    """Return a bucket of `rate` tokens in `per_s` seconds, which holds as many."""
    return None if rate is None else Bucket(rate / per_s, rate, now_s)
