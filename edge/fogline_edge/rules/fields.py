"""Fields of a payload: a JSON pointer (RFC 6901), which reads CBOR too, or a range of bytes."""

import re
from dataclasses import dataclass

from fogline.errors import Misconfigured

_BYTES = re.compile(r"bytes:(\d{1,6})-(\d{1,6})")
_BAD_ESCAPE = re.compile(r"~(?![01])")


@dataclass(frozen=True, slots=True)
class PointerField:
    """A value of a JSON or CBOR document. `tokens`: the steps to it; none for the whole document."""

    text: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BytesField:
    """The bytes `first` to `last`, counted from 0; both are part of it."""

    text: str
    first: int
    last: int


Field = PointerField | BytesField


def parse_field(text: str, key: str) -> Field:
    """Return the field that a setting names. Raises `Misconfigured`, which names the setting `key`."""
    if (found := _BYTES.fullmatch(text)) is not None:
        first, last = int(found[1]), int(found[2])
        if first > last:
            raise Misconfigured(f"{key} = {text!r}: the range ends before it begins")
        return BytesField(text, first, last)
    if (text and not text.startswith("/")) or _BAD_ESCAPE.search(text):
        example = "a JSON pointer such as '/state/counter', '' for the whole document, or bytes such as 'bytes:0-7'"
        raise Misconfigured(f"{key} = {text!r}: expected {example}")
    return PointerField(text, tuple(each.replace("~1", "/").replace("~0", "~") for each in text.split("/")[1:]))
