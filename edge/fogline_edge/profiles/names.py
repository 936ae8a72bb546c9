"""Free names to identifiers and back, and the names of devices that a program has told.

An identifier is `[A-Za-z0-9._:-]{1,64}`. A name that is none is escaped: every byte of its UTF-8 that may not stand there,
and `:` itself, becomes `:` and two hex digits, so that no two names become one (`kitchen/lamp 1` is `kitchen:2Flamp:201`).
"""

import hashlib
import re
from collections.abc import Mapping

from fogline.address import is_identifier, shown
from fogline.errors import Poison

MAX_NAMES = 4096
"""How many names are remembered at most."""

_LIMIT = 64
_DIGEST_BYTES = 8
_KEPT = _LIMIT - 2 - 2 * _DIGEST_BYTES
_PLAIN = re.compile(rb"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(rb":([0-9A-F]{2})")
_NOT_IN_A_NAME = frozenset("/+#")
"""Characters that separate or match levels of topics and paths."""


def escape(name: str) -> str:
    """`name` as an identifier, always the same one.

    One that would be over 64 characters is cut and ends with `::` and a digest, which no escaped name can hold.
    """
    data = name.encode("utf-8", "surrogateescape")
    escaped = _PLAIN.sub(lambda match: b":%02X" % match[0][0], data).decode("ascii")
    if 0 < len(escaped) <= _LIMIT:
        return escaped
    return f"{escaped[:_KEPT]}::{hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()}"


def device_identifier(name: str, what: str) -> str:
    """The identifier of the device that has this name in a topic, a path or a client id: itself, or its escaped form.

    Raises `Poison('bad-identifier')`, naming `what`, for a name with `/`, `+`, `#` or unprintable characters, and for one whose
    escaped form has more than 64 characters: `device_name` would not lead back to it.
    """
    if is_identifier(name):
        return name
    escaped = escape(name)
    if not name.isprintable() or _NOT_IN_A_NAME & set(name) or device_name(escaped) != name:
        raise Poison("bad-identifier", f"{what} {shown(name)} is empty, too long, or holds one of / + # or a control character")
    return escaped


def device_name(identifier: str) -> str:
    """The name that `device_identifier` makes this identifier of: the inverse."""
    unescaped = _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), identifier.encode())
    try:
        name = unescaped.decode()
    except UnicodeDecodeError:
        return identifier
    return name if not is_identifier(name) and escape(name) == identifier else identifier


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
