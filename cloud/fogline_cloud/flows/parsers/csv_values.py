"""Parser `csv`: comma-separated values (RFC 4180), for example the log of a device that collects rows.

The rules:

- UTF-8, fields separated by commas, rows by CRLF or LF, quotes as in RFC 4180. Semicolons and tabs separate nothing.
- The first row is a header if the content type has `header=present` (RFC 4180, section 3). Without the parameter `header` it is
  one if there is a second row, and no field of the first is a number. `header=absent`: it is data.
- A cell is a reading, named by its header; without a header by its position, `column_1`. Rows follow each other.
- A cell that is a decimal number is a number, another is a text, an empty one gives no reading.
- A column with the header `time` is the time of its row, in RFC 3339 with an offset.
- Not understood: a row with another number of fields than the first, and a `time` in another form, which is kept as a text.
- Not understood either: a row with a semicolon or a tab between values, because these may separate its fields, and one whose
  quotes are not those of RFC 4180; a quote without its end takes the rows after it.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence

from fogline.errors import Poison
from fogline.events.event import Event, parse_rfc3339
from fogline_cloud.flows.parsers import Leftover, Reading, Skip

MAX_BYTES = 1024 * 1024
_Row = list[str] | Leftover
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*")
_HEADER = re.compile(r';\s*header\s*=\s*"?(present|absent)"?\s*(;|$)', re.IGNORECASE)
_TIME = "time"
_QUOTED_OR_SEPARATOR = re.compile(r'"[^"]*"|;|(?<=[^\s,])\t(?=[^\s,])')
_SEPARATOR = "\udc00"  # stands for a semicolon or tab outside quotes; no decoded text contains it
_NO_CSV = "semicolons or tabs may separate its fields; only commas do here"
csv.field_size_limit(MAX_BYTES)  # else a longer text than 128 KiB costs its whole row


def parse(event: Event) -> Iterator[Reading | Leftover]:
    """Parse one event. Raises `Skip('empty')` and `Poison` (`too-big`, `malformed`, `separator`)."""
    rows = _rows(event.data)
    if not rows:
        raise Skip("empty", "the body has no rows")
    names, rows, first = _header(event.content_type, rows)
    if _is_unclear(names):
        raise Poison("separator", f"in the header, {_NO_CSV}")
    for number, row in enumerate(rows, first):
        if isinstance(row, Leftover):
            yield Leftover(f"row {number}", row.why)
        elif _is_unclear(row):
            yield Leftover(f"row {number}", _NO_CSV)
        elif len(row) == len(names):
            yield from _readings(names, row, f"row {number}")
        else:
            yield Leftover(f"row {number}", f"{len(row)} fields instead of {len(names)}")


def _is_unclear(row: Sequence[str]) -> bool:
    return any(_SEPARATOR in cell for cell in row)


def _rows(data: bytes) -> list[_Row]:
    if len(data) > MAX_BYTES:
        raise Poison("too-big", f"{len(data)} bytes of CSV; at most {MAX_BYTES}")
    text = data.decode("utf-8-sig", errors="surrogateescape")
    if ";" in text or "\t" in text:
        text = _QUOTED_OR_SEPARATOR.sub(lambda found: found[0] if found[0][0] == '"' else _SEPARATOR, text)
    return list(_decoded(csv.reader(io.StringIO(text, newline=""), strict=True)))


def _decoded(rows: Iterator[list[str]]) -> Iterator[_Row]:
    while True:
        try:
            if row := next(rows):
                yield row
        except StopIteration:
            return
        except csv.Error as error:  # the reader goes on after this row
            yield Leftover("", f"not CSV: {error}")


def _header(content_type: str, rows: list[_Row]) -> tuple[list[str], list[_Row], int]:
    """Return the names of the columns, the rows of data, and the number of the first of them."""
    if isinstance(rows[0], Leftover):
        raise Poison("malformed", f"the first row is {rows[0].why}")
    given = _HEADER.search(content_type)
    likely = len(rows) > 1 and not any(map(_NUMBER.fullmatch, rows[0]))
    present = given[1].lower() == "present" if given else likely
    names = [f"column_{number}" for number in range(1, len(rows[0]) + 1)]
    if not present:
        return names, rows, 1
    return [header.strip() or name for header, name in zip(rows[0], names, strict=True)], rows[1:], 2


def _readings(names: Sequence[str], row: Sequence[str], where: str) -> Iterator[Reading | Leftover]:
    time_ns, time_index = None, names.index(_TIME) if _TIME in names else None
    if time_index is not None:
        try:
            time_ns = parse_rfc3339(row[time_index].strip())
        except (ValueError, OverflowError):
            time_index = None
            yield Leftover(f"{where}, time", "not RFC 3339 with an offset")
    for index, (name, cell) in enumerate(zip(names, row, strict=True)):
        if not cell or index == time_index:
            continue
        if _NUMBER.fullmatch(cell) and math.isfinite(number := float(cell)):
            yield Reading(name, number, time_ns=time_ns)
        else:
            yield Reading(name, text=cell, time_ns=time_ns)
