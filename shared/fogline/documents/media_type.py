"""The content type of an event, as every door decides it, and the check of content types that are given. Pure.

`event_type` is the one rule: what the sender declares, else what the settings declare for the topic or path, else JSON for a
body that begins as an object or an array, else Hono's default. It selects the parser only; the body stays as it is.
"""

import re
from functools import lru_cache
from typing import Final

from fogline.address import shown
from fogline.errors import Poison

MAX_MEDIA_TYPE: Final = 256
"""Limit of the characters of a media type with its parameters."""
RESERVED: Final = "application/vnd.fogline-"
"""Prefix of the media types of gateways and bridges (gap records, dead letters, ...)."""

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
_JSON_START = (b"{", b"[")

_NAME = r"[!#$&^_.+\-A-Za-z0-9]{1,127}"
_PARAMETER = re.compile(rf'[ \t]*;[ \t]*({_NAME})=(?:{_NAME}|"(?:[ !#-\[\]-~]|\\[ -~])*")', re.ASCII)
_TYPE = re.compile(rf"{_NAME}/{_NAME}", re.ASCII)
_END = re.compile(r"[ \t]*;?[ \t]*", re.ASCII)


def event_type(given: str | None, declared: str | None, body: bytes) -> str:
    """Return the content type of an event. `given`: the sender's, `declared`: that of the settings; None: there is none."""
    return given or declared or (JSON if body[:1] in _JSON_START else OCTETS)


def check_encoding(encoding: str | None) -> None:
    """Raise `Poison('bad-encoding')` for a content encoding (RFC 9110 section 8.4), because an event has no place for it."""
    if encoding is not None and encoding.strip().lower() not in ("", "identity"):
        raise Poison("bad-encoding", f"the body has the content encoding {shown(encoding)}: send it without one")


def check_payload(declared: str | None, body: bytes) -> None:
    """Raise `Poison('no-payload')` for an empty body whose content type neither the sender nor the settings declare.

    For doors whose protocol can refuse it, and where every sender can declare a content type.
    """
    if not body and not declared:
        raise Poison("no-payload", "a message without a body needs a content type")


def is_media_type(given: str) -> bool:
    """Return True for a media type (RFC 6838, RFC 9110 section 8.3.1). Raises `Poison('reserved-content-type')`."""
    if given[: len(RESERVED)].lower() == RESERVED:
        raise Poison("reserved-content-type", f"content type {shown(given)} is for gateways and bridges only")
    return len(given) <= MAX_MEDIA_TYPE and _is_well_formed(given)


def check_media_type(given: str) -> str:
    """Return `given` if it is a media type. Raises `Poison` (`bad-content-type`, `reserved-content-type`)."""
    if not is_media_type(given):
        raise Poison("bad-content-type", f"content type {shown(given)} is not a media type such as text/plain; charset=utf-8")
    return given


@lru_cache(maxsize=1024)
def _is_well_formed(given: str) -> bool:
    found = _TYPE.match(given)
    names: set[str] = set()
    while found is not None:
        at = found.end()
        found = _PARAMETER.match(given, at)
        if found is None:
            return _END.fullmatch(given, at) is not None
        if found[1].lower() in names:
            return False
        names.add(found[1].lower())
    return False
