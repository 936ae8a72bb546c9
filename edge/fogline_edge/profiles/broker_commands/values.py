"""Values that a command sets, compared with those that a device shows. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fogline.commands.command import Command
from fogline.documents.media_type import JSON
from fogline.errors import Poison

TEXT = "text/plain"

_COMPANIONS = {"transition", "on_time", "off_wait_time"}
"""Keys of a command that say how a value changes. No report has them."""
_TOGGLE = "toggle"


ANY: Any = object()
"""Stands for every value: the command does not say which one the device will show."""


def value_of(payload: bytes) -> Any:
    """Return a payload as a JSON value, or else as text."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return payload.decode("utf-8", "replace")


def content_type_of(payload: bytes) -> str:
    """Return the content type of a reply with this payload."""
    return JSON if payload[:1] in (b"{", b"[") else TEXT


def argument_text(command: Command) -> str:
    """Return a command's argument as text: a text as it is, and a JSON string without its quotes. Raises `Poison`."""
    value = value_of(command.data) if command.content_type == JSON else None
    try:
        return value if isinstance(value, str) else command.data.decode()
    except UnicodeDecodeError:
        raise Poison("bad-argument", "the argument is not text in UTF-8") from None


def wanted_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that a report must show after a command with these arguments."""
    return {key: value for key, value in arguments.items() if key not in _COMPANIONS}


def expected(value: Any, before: Any) -> Any:
    """Return the value that a device shows after it was set to `value`, if it has shown `before` (None: unknown).

    `TOGGLE` means the other one of ON and OFF.
    """
    if not isinstance(value, str) or value.casefold() != _TOGGLE:
        return value
    match before.casefold() if isinstance(before, str) else None:
        case "on":
            return "OFF"
        case "off":
            return "ON"
    return ANY


def shows(wanted: Any, shown: Any) -> bool:
    """Return True if a reported value is the wanted one: equal numbers, texts in any case, and the wanted keys of an object."""
    if shown is None:
        return False
    if wanted is ANY:
        return True
    if isinstance(wanted, Mapping):
        return isinstance(shown, Mapping) and all(shows(value, shown.get(key)) for key, value in wanted.items())
    if isinstance(wanted, str):
        return isinstance(shown, str) and shown.casefold() == wanted.casefold()
    if isinstance(wanted, bool) or isinstance(shown, bool):
        return wanted is shown
    return bool(wanted == shown)
