"""Recent exchanges, and the response to a duplicate of each request (RFC 7252, section 4.5). Pure.

An exchange may be forgotten early, for lack of room or in a restart: the port still recognises the retransmission. The
Message ID alone is not trusted: a message with a recent Message ID and other bytes is a new message.
"""

from typing import Protocol

from fogline.events.identity import Retransmission
from fogline_edge.adapters.coap.wire import CoapMessage, CoapResponse, Endpoint, MessageType

EXCHANGE_LIFETIME_S = 247
"""EXCHANGE_LIFETIME: a Message ID is not reused within this time (RFC 7252, section 4.8.2)."""


class Protection(Protocol):
    """Seals the responses to one request."""

    @property
    def key_number(self) -> int:
        """The number of the device's key."""

    def protect(self, response: CoapResponse, *, again: bool) -> CoapResponse | None:
        """Return a response as it travels; None if it cannot be sealed now. `again`: the request has had a response."""


class Exchange:
    """One request of `size` bytes. `cached`: answers a duplicate. `acknowledged`: the response must go separately.

    `sender`: the device that has sent it, as DTLS or OSCORE proves; "" for a request without protection. `protection`: seals
    the responses. `evidence`: how a retransmission is recognised, if not by endpoint, Message ID and Token.
    """

    __slots__ = (
        "acknowledged",
        "born",
        "cached",
        "endpoint",
        "evidence",
        "fingerprint",
        "kind",
        "mid",
        "protection",
        "replied",
        "sender",
        "size",
        "token",
    )

    def __init__(self, endpoint: Endpoint, message: CoapMessage, fingerprint: int, born: float, size: int = 0) -> None:
        self.endpoint = endpoint
        self.kind = message.kind
        self.mid = message.mid
        self.token = message.token
        self.fingerprint = fingerprint
        self.born = born
        self.size = size
        self.sender = ""
        self.protection: Protection | None = None
        self.evidence: Retransmission | None = None
        self.cached: bytes | None = None
        self.acknowledged = False
        self.replied = False

    @property
    def confirmable(self) -> bool:
        """True if the request is Confirmable."""
        return self.kind == MessageType.CON


class Exchanges:
    """Exchanges of the last `EXCHANGE_LIFETIME_S`, at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[tuple[Endpoint, int], Exchange] = {}

    def known(self, endpoint: Endpoint, mid: int, fingerprint: int, now_s: float) -> Exchange | None:
        """Return the exchange of which a datagram with this fingerprint is a duplicate, or None."""
        found = self._known.get((endpoint, mid))
        if found is None or found.fingerprint != fingerprint or now_s - found.born > EXCHANGE_LIFETIME_S:
            return None
        return found

    def begin(self, endpoint: Endpoint, message: CoapMessage, fingerprint: int, now_s: float, size: int = 0) -> Exchange:
        """Begin an exchange, whose request has `size` bytes."""
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
