"""How the operator's page shows a text, a time, bytes: nothing that a device sent can be anything but text. Pure."""

import json
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from fogline.process.console.terminal import escaped

MAX_TEXT = 2000
"""Characters of one text that a page shows."""
MAX_BYTES = 1024
"""Bytes of one body that a page shows."""
_HEX = 16


def shown(value: Any) -> Any:
    r"""Return what a template writes for a value. A text is cut, and what does not print is written out (`\x1b`, `\u202e`)."""
    if value is None:
        return "-"
    if type(value) is not str:
        return value  # a number; or `Markup`, which a template made
    rest = len(value) - MAX_TEXT
    return escaped(value) if rest <= 0 else f"{escaped(value[:MAX_TEXT])} … and {rest:,} more characters"


def moment(value: datetime | float | None) -> Markup:
    """Return a time, also as milliseconds since 1970, as an element `time` in UTC, to which console.js adds the local time."""
    if value is None:
        return Markup("-")
    try:
        found = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int | float) else value.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return escape(str(value))
    return Markup('<time datetime="{}">{} UTC</time>').format(f"{found:%Y-%m-%dT%H:%M:%S.%fZ}", f"{found:%Y-%m-%d %H:%M:%S}")


def age(seconds: float) -> str:
    """Return a length of time with one unit, as people say it."""
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


def pretty(value: Any) -> list[str]:
    """Return JSON on several lines."""
    return json.dumps(value, indent=2, ensure_ascii=False).splitlines()


def lines_of(data: bytes) -> list[str]:
    """Return a body as lines: JSON as JSON, other text as text, else as hexadecimal bytes beside their ASCII."""
    part, rest = data[:MAX_BYTES], len(data) - MAX_BYTES
    try:
        found = pretty(json.loads(data)) if rest <= 0 else part.decode().splitlines()
    except (ValueError, RecursionError):
        try:
            found = part.decode().splitlines()
        except UnicodeDecodeError:
            found = _dump(part)
    if any(not (each.isprintable() or each in "\t ") for line in found for each in line):
        found = _dump(part)
    return [*found, f"… and {rest:,} more bytes"] if rest > 0 else found


def _dump(data: bytes) -> list[str]:
    lines = []
    for begin in range(0, len(data), _HEX):
        part = data[begin : begin + _HEX]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{begin:04x}  {part.hex(' '):{3 * _HEX - 1}}  {text}")
    return lines
