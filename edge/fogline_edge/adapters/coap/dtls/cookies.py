"""Cookies of HelloVerifyRequest: nothing is kept of a client before it has shown that it gets what is sent to its address.

RFC 6347, section 4.2.1. A cookie is an HMAC over the address and the ClientHello, and counts for one to two minutes.
"""

import hashlib
import hmac
import secrets

COOKIE_BYTES = 16
PERIOD_S = 60.0


class Cookies:
    """Makes and checks cookies with a secret of this process."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret if secret is not None else secrets.token_bytes(32)

    def make(self, hello: bytes, address: str, now_s: float) -> bytes:
        """Return the cookie of a client. `hello`: the parts of its ClientHello that it must repeat."""
        return self._of_period(hello, address, int(now_s // PERIOD_S))

    def verify(self, cookie: bytes, hello: bytes, address: str, now_s: float) -> bool:
        """Return True if this is the cookie of this client, of this period or the one before."""
        period = int(now_s // PERIOD_S)
        return any(hmac.compare_digest(cookie, self._of_period(hello, address, each)) for each in (period, period - 1))

    def _of_period(self, hello: bytes, address: str, period: int) -> bytes:
        named = address.encode()
        text = period.to_bytes(8) + len(named).to_bytes(2) + named + hello
        return hmac.digest(self._secret, text, hashlib.sha256)[:COOKIE_BYTES]
