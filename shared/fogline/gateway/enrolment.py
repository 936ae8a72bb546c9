"""Enrolment: a gateway sends a certificate signing request (PKCS #10, RFC 2986), and gets a certificate.

It logs in by a one-time token (SASL PLAIN, user `enroll/{gateway}`), or, to renew, by the certificate that it has. It sends
the request in PEM to `enroll/{tenant}/{gateway}`, and an `Enrolled` comes from there. The token holds the authority's
certificate, so the gateway trusts nobody else from its first byte on.

A gateway that is given up sends an empty message of type `REVOKE_TYPE` there, and the certificate of its login is revoked.
"""

import base64
import binascii
from typing import Final

import msgspec

from fogline.errors import Poison

PRODUCT: Final = "fogline-enroll"
"""The connection property `product` of a gateway that enrols or renews."""
USER_PREFIX: Final = "enroll/"
MAX_REQUEST_BYTES: Final = 8192
REQUEST_TYPE: Final = "application/pkcs10"
REVOKE_TYPE: Final = "application/vnd.fogline-revoke"
_FIRST: Final = "fogline1."


class EnrolmentToken(msgspec.Struct, frozen=True):
    """What a gateway needs to enrol. `secret`: proves that it may, once. `ca`: certificate of the authority (DER)."""

    tenant: str
    gateway: str
    secret: str
    ca: bytes

    def __repr__(self) -> str:
        return f"EnrolmentToken({self.tenant}, {self.gateway})"

    def encode(self) -> str:
        """Return the token as one word."""
        return _FIRST + base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


class Enrolled(msgspec.Struct, frozen=True):
    """The answer to a request: certificate of the gateway and of the authority (PEM), or why the request is refused.

    `revoked`: the serial number of the certificate that was revoked, in hexadecimal digits.
    """

    certificate: str = ""
    ca: str = ""
    refused: str = ""
    revoked: str = ""


def decode_token(text: str) -> EnrolmentToken:
    """Return the token of a word. Raises `Poison('bad-token')`."""
    word = text.strip()
    if not word.startswith(_FIRST):
        raise Poison("bad-token", f"a token begins with {_FIRST}; make one with: fogline gateway add")
    body = word.removeprefix(_FIRST)
    try:
        return msgspec.msgpack.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=EnrolmentToken)
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        raise Poison("bad-token", "the token is damaged: copy all of it, it is one long word") from None
