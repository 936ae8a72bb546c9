"""Conditional requests for a resource whose ETag is its version (RFC 9110 section 13). Pure."""

import re

from fogline.address import shown
from fogline_cloud.api.problems import Problem

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"[ \t]*{_TAG}[ \t]*(?:,[ \t]*{_TAG}[ \t]*)*")
_MAX_DIGITS = 18
_EACH = re.compile(r'(W/)?"([^"]*)"')


def wanted_version(if_match: str | None, if_none_match: str | None, present: int | None) -> int | None:
    """Return the version that the resource must still have: 0 for none, `None` for any. `present`: its version as it is known.

    A single tag is left to the owner of the resource, who knows better. Raises `Problem`: 412 if another condition is false,
    400 for a field that is no list of entity tags.
    """
    wanted: int | None = None
    if if_match is not None:
        wanted = present if if_match.strip() == "*" else _strong_match(_tags("If-Match", if_match), present)
        if wanted is None:
            raise Problem(412, f"If-Match: {shown(if_match)} is not the version {_named(present)}")
    if if_none_match is not None:
        if if_none_match.strip() == "*":
            return 0 if wanted is None else wanted
        if is_unchanged(if_none_match, present):
            raise Problem(412, f"If-None-Match: {shown(if_none_match)} is the version {_named(present)}")
    return wanted


def is_unchanged(if_none_match: str | None, present: int | None) -> bool:
    """Return True if a GET has the present version already: 304. Tags are compared weakly. Raises `Problem` (400)."""
    if if_none_match is None or present is None:
        return False
    return if_none_match.strip() == "*" or str(present) in {tag for _, tag in _tags("If-None-Match", if_none_match)}


def _tags(name: str, text: str) -> list[tuple[str, str]]:
    if _TAGS.fullmatch(text) is None:
        raise Problem(400, f'{name}: {shown(text)} is not an ETag of this address, for example "3"')
    return _EACH.findall(text)


def _strong_match(tags: list[tuple[str, str]], present: int | None) -> int | None:
    match tags:
        case [("", tag)] if tag.isascii() and tag.isdecimal() and len(tag) <= _MAX_DIGITS:
            return int(tag)
    return present if ("", str(present)) in tags else None


def _named(present: int | None) -> str:
    return "0" if present is None else str(present)
