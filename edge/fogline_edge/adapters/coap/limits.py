"""Who may send how much: a token bucket for each endpoint and one for all. Pure, and bounded itself."""

import random
from collections import OrderedDict
from enum import Enum, auto

from fogline.rates import Bucket
from fogline_edge.adapters.coap.wire import Endpoint

REFUSALS_S = 50
"""How many datagrams a second are told that they were too many; the others are dropped without a word."""


class Verdict(Enum):
    """What to do with a datagram. `REFUSE`: say 4.29, if it is a new confirmable request."""

    ADMIT = auto()
    REFUSE = auto()
    DROP = auto()


class _Peer:
    """What is remembered of one endpoint: its bucket, and the message id that we use next towards it."""

    __slots__ = ("bucket", "mid")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.mid = random.randrange(65_536)


class Limits:
    """The buckets. At most `endpoints` are remembered, the latest; whoever is forgotten starts with a full one."""

    def __init__(self, *, all_s: float, all_burst: int, each_s: float, each_burst: int, endpoints: int) -> None:
        self._all = Bucket(all_s, all_burst, 0.0)
        self._refusals = Bucket(REFUSALS_S, REFUSALS_S, 0.0)
        self._each = each_s, each_burst
        self._most = endpoints
        self._peers: OrderedDict[Endpoint, _Peer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._peers)

    def admit(self, endpoint: Endpoint, now_s: float) -> Verdict:
        """Decide about one datagram. Who sends too much uses up its own bucket only, not the one for all."""
        peer = self._peers.get(endpoint)
        if peer is not None and not peer.bucket.take(now_s):
            return Verdict.REFUSE if self._refusals.take(now_s) else Verdict.DROP
        if not self._all.take(now_s):
            return Verdict.DROP
        if peer is None:
            self._remember(endpoint, now_s).bucket.take(now_s)
        else:
            self._peers.move_to_end(endpoint)
        return Verdict.ADMIT

    def next_mid(self, endpoint: Endpoint, now_s: float) -> int:
        """A message id that was not used towards this endpoint for a long time (RFC 7252, section 4.4)."""
        peer = self._peers.get(endpoint) or self._remember(endpoint, now_s)
        peer.mid = peer.mid + 1 & 0xFFFF
        return peer.mid

    def _remember(self, endpoint: Endpoint, now_s: float) -> _Peer:
        if len(self._peers) >= self._most:
            self._peers.popitem(last=False)
        peer = self._peers[endpoint] = _Peer(Bucket(*self._each, now_s))
        return peer
