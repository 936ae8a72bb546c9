"""Checks the content types that devices, clients and settings files give. Pure."""

import re
from functools import lru_cache
from typing import Final

from fogline.address import shown
from fogline.errors import Poison

MAX_MEDIA_TYPE: Final = 256
"""Limit of the characters of a media type with its parameters."""
RESERVED: Final = "application/vnd.fogline-"
"""Prefix of the media types of gateways and bridges (gap records, dead letters, ...)."""

_NAME = r"[!#$&^_.+\-A-Za-z0-9]{1,127}"
_PARAMETER = re.compile(rf'[ \t]*;[ \t]*({_NAME})=(?:{_NAME}|"(?:[ !#-\[\]-~]|\\[ -~])*")', re.ASCII)
_TYPE = re.compile(rf"{_NAME}/{_NAME}", re.ASCII)
_END = re.compile(r"[ \t]*;?[ \t]*", re.ASCII)


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
