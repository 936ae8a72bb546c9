"""Rules of HTTP/1.1 that h11 leaves to its user, for the gateway's listener and the API. Pure."""

import re
from collections.abc import Iterable

MAX_HEAD_BYTES = 16_384
"""Longest head of a request, also of one that arrives at once: h11 bounds only what is not complete."""
_CRLF = b"\r\n"
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]*)(?::[0-9]{0,5})?")

Fields = Iterable[tuple[bytes, bytes]]


def without_blank_lines(data: bytes) -> bytes:
    """Return what begins a request, without empty lines before it (RFC 9112 section 2.2): some clients end a body with one."""
    while data.startswith(_CRLF):
        data = data[len(_CRLF) :]
    return data


def must_close(fields: Fields) -> bool:
    """Return True if the connection must end with the response: both lengths are given (RFC 9112 section 6.1).

    A proxy in front may have taken the other length, and what follows may be a request that it has not seen.
    """
    names = {name.lower() for name, _ in fields}
    return b"transfer-encoding" in names and b"content-length" in names


def head_bytes(method: bytes, target: bytes, fields: Fields) -> int:
    """Return the size of a request's head."""
    return len(method) + len(target) + 12 + sum(len(name) + len(value) + 4 for name, value in fields)


def is_host(text: str) -> bool:
    """Return True for the value of a Host field (RFC 9110 section 7.2). It may be empty."""
    return _HOST.fullmatch(text) is not None
