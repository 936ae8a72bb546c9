"""Free names to identifiers, and the names of devices that a program has told.

An identifier is `[A-Za-z0-9._:-]{1,64}`. A name that is none is escaped: every byte of its UTF-8 that may not stand there,
and `:` itself, becomes `:` and two hex digits, so that no two names become one (`kitchen/lamp 1` is `kitchen:2Flamp:201`).
"""

import hashlib
import re
from collections.abc import Mapping

from fogline.address import is_identifier

MAX_NAMES = 4096
"""How many names are remembered at most."""

_LIMIT = 64
_DIGEST_BYTES = 8
_KEPT = _LIMIT - 2 - 2 * _DIGEST_BYTES
_PLAIN = re.compile(rb"[^A-Za-z0-9._-]")


def escape(name: str) -> str:
    """`name` as an identifier, always the same one.

    One that would be over 64 characters is cut and ends with `::` and a digest, which no escaped name can hold.
    """
    data = name.encode("utf-8", "surrogateescape")
    escaped = _PLAIN.sub(lambda match: b":%02X" % match[0][0], data).decode("ascii")
    if 0 < len(escaped) <= _LIMIT:
        return escaped
    return f"{escaped[:_KEPT]}::{hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"


class Names:
    """Name -> identifier, as last told. What was told before a restart comes in by `known`."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = dict(known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def identifier(self, name: str) -> str:
        """The identifier that was told for `name`, else its escaped form."""
        return self._known.get(name) or escape(name)

    def learn(self, told: Mapping[str, str]) -> dict[str, str | None]:
        """Take `told` as all names there are (at most `MAX_NAMES`); returns what is new, and `None` for what is gone."""
        wanted: dict[str, str] = {}
        for name, identifier in told.items():
            if len(wanted) < MAX_NAMES and is_identifier(identifier):
                wanted[name] = identifier
        changed: dict[str, str | None] = dict.fromkeys(self._known.keys() - wanted.keys())
        changed.update({name: value for name, value in wanted.items() if self._known.get(name) != value})
        self._known = wanted
        return changed
