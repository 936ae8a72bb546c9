"""Compares the rows of a table with expected ones, which a file has as JSON lines. Pure.

Each line has the columns to compare; further columns of the table are left out. The order of rows does not count. Times are
RFC 3339 in UTC (`2026-01-04T10:00:00Z`), bytes base64. Numbers are equal if their first 9 digits are.
"""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec

from fogline.documents.document_error import explained
from fogline.errors import Misconfigured

Row = Mapping[str, Any]


class RowDifference(msgspec.Struct, frozen=True):
    """How a table differs from what is expected. `missing`, `unexpected`: rows, as JSON."""

    table: str
    missing: list[str]
    unexpected: list[str]

    @property
    def is_none(self) -> bool:
        """True if the rows are those that are expected."""
        return not self.missing and not self.unexpected


def read_rows(name: str, content: bytes) -> list[Row]:
    """Read expected rows. Raises `Misconfigured`, which names the line. `name`: of the file."""
    rows: list[Row] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
        except msgspec.MsgspecError as error:
            raise Misconfigured(f"{name}:{number}: {explained(error, dict)}") from None
        if rows[-1].keys() != rows[0].keys():
            raise Misconfigured(f"{name}:{number}: expected the columns of the first line: {', '.join(rows[0])}")
    return rows


def compare(table: str, expected: Sequence[Row], found: Iterable[Row]) -> RowDifference:
    """Return the difference. `found`: rows with at least the columns of `expected`."""
    columns = list(expected[0]) if expected else None
    wanted = Counter(_text(each, columns) for each in expected)
    there = Counter(_text(each, columns) for each in found)
    return RowDifference(table, sorted((wanted - there).elements()), sorted((there - wanted).elements()))


def _text(row: Row, columns: Sequence[str] | None) -> str:
    return json.dumps({name: _plain(row[name]) for name in columns or row}, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    for kind, convert in _SCALARS:
        if isinstance(value, kind):
            return convert(value)
    return value if value is None else str(value)


def _rounded(value: float) -> float:
    number = float(f"{value:.9g}")
    return int(number) if number.is_integer() else number


def _utc(value: datetime) -> str:
    return f"{value.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


_SCALARS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (bool | str, lambda value: value),
    (int | float, _rounded),
    (datetime, _utc),
    (date, date.isoformat),
    (bytes, lambda value: base64.b64encode(value).decode()),
)
