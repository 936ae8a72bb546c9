"""Prints rows, facts and times in the one way of all commands (docs/reference/command-line.md)."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fogline.process.console.terminal import show, tell


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str, more: int = 0) -> None:
    """Print a header line and the rows, numbers to the right, `-` for None; without rows the sentence `empty`, on stderr.

    `more`: the number of rows that --limit has left out.
    """
    if not rows:
        tell(empty)
        return
    texts = [[_text(each) for each in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *texts, strict=True)]
    is_number = [any(isinstance(each, int) for each in column) for column in zip(*rows, strict=True)]
    for line in ([each.upper() for each in columns], *texts):
        cells = zip(line, widths, is_number, strict=True)
        show("  ".join(text.rjust(width) if number else text.ljust(width) for text, width, number in cells).rstrip())
    if more:
        tell(f"{more:,} more: see --limit")


def _text(value: object) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print one fact a line. A name that ends with `_ms` is that of a time, in milliseconds since 1970."""
    for name, value in facts.items():
        is_time = name.endswith("_ms")
        text = utc(value / 1000) if is_time else value if isinstance(value, str | int) else json.dumps(value)
        show(f"{name.removesuffix('_ms'):12} {text}")


def utc(moment: datetime | float | None) -> str:
    """Return a time, also as seconds since 1970, as RFC 3339 in UTC, to the second; `-` for None."""
    if moment is None:
        return "-"
    found = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else moment.astimezone(UTC)
    return f"{found:%Y-%m-%dT%H:%M:%SZ}"
