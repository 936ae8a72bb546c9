"""Basic authentication of HTTP (RFC 7617). Pure."""

import base64
import binascii
from typing import Final

from fogline.errors import Poison

CHALLENGE: Final = "www-authenticate", 'Basic realm="fogline", charset="UTF-8"'
"""Header of a response with status 401."""


def basic_credentials(authorization: str) -> tuple[str, bytes]:
    """Return user name and password of a header `Authorization`. Raises `Poison` (`no-login`, `bad-login`)."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise Poison("no-login", "log in as a device, by Basic authentication")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        name = user.decode()
    except (binascii.Error, ValueError):
        raise Poison("bad-login", "the credentials are not readable") from None
    if not colon:
        raise Poison("bad-login", "the credentials have no colon")
    return name, password
