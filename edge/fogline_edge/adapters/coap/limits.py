"""Rate limits: a token bucket for each endpoint and one for all. Pure, and bounded in memory."""

import random
from collections import OrderedDict
from enum import Enum, auto

from fogline.process.rates import Bucket
from fogline_edge.adapters.coap.wire import CoapResponse, Code, Endpoint, Option, uint

REFUSALS_S = 50
"""4.29 responses per second for all endpoints; datagrams beyond are dropped without a response."""
TOO_MANY = CoapResponse(Code.TOO_MANY_REQUESTS, ((Option.MAX_AGE, uint(1)),))


class RateVerdict(Enum):
    """Decision about a datagram. `REFUSE`: respond 4.29 if it is a new Confirmable request."""

    ADMIT = auto()
    REFUSE = auto()
    DROP = auto()


class _Peer:
    __slots__ = ("bucket", "mid")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.mid = random.randrange(65_536)


class EndpointLimits:
    """Buckets of the latest `endpoints`; an endpoint that was forgotten starts with a full bucket."""

    def __init__(self, *, all_s: float, all_burst: int, each_s: float, each_burst: int, endpoints: int) -> None:
        self._all = Bucket(all_s, all_burst, 0.0)
        self._refusals = Bucket(REFUSALS_S, REFUSALS_S, 0.0)
        self._each = each_s, each_burst
        self._most = endpoints
        self._peers: OrderedDict[Endpoint, _Peer] = OrderedDict()

    def admit(self, endpoint: Endpoint, now_s: float) -> RateVerdict:
        """Decide about one datagram. An endpoint over its own limit takes nothing from the bucket for all."""
        peer = self._peers.get(endpoint)
        if peer is not None and not peer.bucket.take(now_s):
            return RateVerdict.REFUSE if self._refusals.take(now_s) else RateVerdict.DROP
        if not self._all.take(now_s):
            return RateVerdict.DROP
        if peer is None:
            self._remember(endpoint, now_s).bucket.take(now_s)
        else:
            self._peers.move_to_end(endpoint)
        return RateVerdict.ADMIT

    def next_mid(self, endpoint: Endpoint, now_s: float) -> int:
        """Return a Message ID that was not used towards this endpoint for a long time (RFC 7252, section 4.4)."""
        peer = self._peers.get(endpoint) or self._remember(endpoint, now_s)
        peer.mid = peer.mid + 1 & 0xFFFF
        return peer.mid

    def _remember(self, endpoint: Endpoint, now_s: float) -> _Peer:
        if len(self._peers) >= self._most:
            self._peers.popitem(last=False)
        peer = self._peers[endpoint] = _Peer(Bucket(*self._each, now_s))
        return peer
