"""Converts free names to identifiers and back, and keeps the device names that a program has published.

An identifier is `[A-Za-z0-9._:-]{1,64}`. Any other name is escaped: each byte of its UTF-8 that is not allowed, and `:` itself,
becomes `:` and two hex digits, so that two names never become one (`kitchen/lamp 1` becomes `kitchen:2Flamp:201`).
"""

import hashlib
import re
from collections.abc import Mapping
from itertools import islice

from fogline.address import is_identifier, shown
from fogline.errors import Poison

MAX_NAMES = 4096
_LIMIT = 64
_DIGEST_BYTES = 8
_KEPT = _LIMIT - 2 - 2 * _DIGEST_BYTES
_PLAIN = re.compile(rb"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(rb":([0-9A-F]{2})")
_NOT_IN_A_NAME = frozenset("/+#")  # they separate or match levels of topics and paths


def escape(name: str) -> str:
    """Return `name` as an identifier. One over 64 characters is cut and ends with `::`, which no other has, and a digest."""
    data = name.encode("utf-8", "surrogateescape")
    escaped = _PLAIN.sub(lambda match: b":%02X" % match[0][0], data).decode("ascii")
    if 0 < len(escaped) <= _LIMIT:
        return escaped
    return f"{escaped[:_KEPT]}::{hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"


def device_identifier(name: str, what: str) -> str:
    """Return the identifier of the device with this name in a topic, a path or a client id: the name, or its escaped form.

    Raises `Poison('bad-identifier')`, naming `what`, for `/`, `+`, `#`, unprintable characters, and more than 64 when escaped.
    """
    if is_identifier(name):
        return name
    escaped = escape(name)
    if not name.isprintable() or _NOT_IN_A_NAME & set(name) or device_name(escaped) != name:
        raise Poison("bad-identifier", f"{what} {shown(name)} is empty, too long, or holds one of / + # or a control character")
    return escaped


def device_name(identifier: str) -> str:
    """Return the name of an identifier: the inverse of `device_identifier`."""
    unescaped = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), identifier.encode())
    try:
        name = unescaped.decode()
    except UnicodeDecodeError:
        return identifier
    return name if not is_identifier(name) and escape(name) == identifier else identifier


class Names:
    """The identifiers of names, as last published. `known`: those from before a restart."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def identifier(self, name: str) -> str:
        """Return the identifier that was published for `name`, or else its escaped form."""
        return self._known.get(name) or escape(name)

    def learn(self, published: Mapping[str, str]) -> dict[str, str | None]:
        """Replace all names by `published` (at most `MAX_NAMES`). Returns the changes, with None for a name that is gone."""
        wanted = dict(islice((each for each in published.items() if is_identifier(each[1])), MAX_NAMES))
        changed: dict[str, str | None] = dict.fromkeys(self._known.keys() - wanted.keys())
        changed.update({name: value for name, value in wanted.items() if self._known.get(name) != value})
        self._known = wanted
        return changed
