"""Which messages came lately, and what a duplicate of each is answered with (RFC 7252, section 4.5): pure.

What is forgotten early, because there is too much of it, or with a restart, does no harm: the port recognises the same
message again by its `Retransmission`. The RFC's id alone is not trusted: a message with an id that was used lately, and
other bytes, is another message.
"""

from fogline_edge.adapters.coap.wire import Endpoint, Kind, Message

EXCHANGE_LIFETIME_S = 247
"""For how long a message id means the same message (RFC 7252, section 4.8.2)."""


class Exchange:
    """One request and its response. `again`: what a duplicate gets, nothing while there is no answer.

    `acknowledged`: an empty ACK was sent, so that the response goes separately. `replied`: it has its response. `size`: how
    many bytes the request has.
    """

    __slots__ = ("acknowledged", "again", "born", "endpoint", "fingerprint", "kind", "mid", "replied", "size", "token")

    def __init__(self, endpoint: Endpoint, message: Message, fingerprint: int, born: float, size: int = 0) -> None:
        self.endpoint = endpoint
        self.kind = message.kind
        self.mid = message.mid
        self.token = message.token
        self.fingerprint = fingerprint
        self.born = born
        self.size = size
        self.again: bytes | None = None
        self.acknowledged = False
        self.replied = False

    @property
    def confirmable(self) -> bool:
        """Whether the client awaits an acknowledgement."""
        return self.kind == Kind.CON


class Exchanges:
    """The exchanges of the last `EXCHANGE_LIFETIME_S`, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[Endpoint, int], Exchange] = {}

    def __len__(self) -> int:
        return len(self._known)

    def known(self, endpoint: Endpoint, mid: int, fingerprint: int, now_s: float) -> Exchange | None:
        """The exchange that a datagram with this fingerprint is a duplicate of."""
        found = self._known.get((endpoint, mid))
        if found is None or found.fingerprint != fingerprint or now_s - found.born > EXCHANGE_LIFETIME_S:
            return None
        return found

    def begin(self, endpoint: Endpoint, message: Message, fingerprint: int, now_s: float, size: int = 0) -> Exchange:
        """Remember a new one, whose request has `size` bytes."""
        known = self._known
        key = (endpoint, message.mid)
        known.pop(key, None)
        while known:
            oldest = next(iter(known))
            if len(known) < self._most and now_s - known[oldest].born <= EXCHANGE_LIFETIME_S:
                break
            del known[oldest]
        found = known[key] = Exchange(endpoint, message, fingerprint, now_s, size)
        return found
