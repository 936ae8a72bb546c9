"""SQLite's file format, read without SQLite, for damaged files. Pure: pages in, rows out.

Sections are those of https://sqlite.org/fileformat2.html. Only the format of the outbox's own files is supported: pages
without reserved bytes, of 2048 bytes, text in UTF-8, no vacuum.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

PAGE_BYTES = 2048
"""With 4096 bytes, a commit of one event writes 9.4 kB; with 2048, 7.2 kB."""
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
"""More than any row of the outbox has."""

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
_INTERIOR = (INDEX_INTERIOR, TABLE_INTERIOR)
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_FRAME = struct.Struct(">IIIIII")
_LOG_HEADER = struct.Struct(">IIIIIIII")
_MAGIC = 0x377F0682

Value = int | str | bytes | None
PageOf = Callable[[int], bytes | None]
"""Returns a page by its number, from 1, or None if it is unreadable."""


class UnreadableError(ValueError):
    """The bytes do not have SQLite's format."""


class Cell(NamedTuple):
    """One row and its offset on the page. `rowid` is 0 in a table without row ids."""

    offset: int
    rowid: int
    values: tuple[Value, ...]


def places(page: bytes, number: int) -> tuple[int, ...]:
    """Return the offsets of the cells of a b-tree page. Raises `UnreadableError`."""
    begin = 100 if number == 1 else 0
    kind = page[begin]
    if kind not in (INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF):
        raise UnreadableError(f"page {number} is no page of a b-tree")
    first = begin + (12 if kind in _INTERIOR else 8)
    count = int.from_bytes(page[begin + 3 : begin + 5])
    if first + 2 * count > len(page):
        raise UnreadableError(f"page {number} cannot hold {count} cells")
    return tuple(each & len(page) - 1 for each in struct.unpack_from(f">{count}H", page, first))  # as SQLite reads them


def children(page: bytes, number: int) -> tuple[int, ...]:
    """Return the pages below an interior page, from left to right; none for a leaf. Raises `UnreadableError`."""
    at = places(page, number)
    begin = 100 if number == 1 else 0
    if page[begin] not in _INTERIOR:
        return ()
    below = [int.from_bytes(page[each : each + 4]) for each in at]
    return (*below, int.from_bytes(page[begin + 8 : begin + 12]))


def cells(page: bytes, number: int, page_of: PageOf) -> Iterator[Cell | None]:
    """Yield the rows of a page in order, None for an unreadable one. Raises `UnreadableError` before the first."""
    at, kind = places(page, number), page[100 if number == 1 else 0]
    if kind == TABLE_INTERIOR:
        return
    for offset in at:
        try:
            yield cell(page, kind, offset, page_of)
        except (ValueError, IndexError):
            yield None


def cell(page: bytes, kind: int, offset: int, page_of: PageOf) -> Cell:
    """Return the row at one offset (section 1.6). Raises `ValueError` or `IndexError`."""
    at, rowid, most = offset, 0, (len(page) - 12) * 64 // 255 - 23
    least, overflow_bytes = (len(page) - 12) * 32 // 255 - 23, len(page) - 4
    if kind == INDEX_INTERIOR:
        at += 4
    size, at = _varint(page, at)
    if kind == TABLE_LEAF:
        rowid, at = _varint(page, at)
        most = len(page) - 35
    if size <= most:
        return Cell(offset, rowid, record(page[at : at + size], size))
    local = least + (size - least) % overflow_bytes
    local = local if local <= most else least
    parts, left = [page[at : at + local]], size - local if size <= MAX_PAYLOAD_BYTES else 0
    following = int.from_bytes(page[at + local : at + local + 4])
    while left > 0:
        overflow = page_of(following)
        if overflow is None:  # an event may be whole without: the body stands before its last value
            break
        following = int.from_bytes(overflow[:4])
        parts.append(overflow[4 : 4 + left])
        left -= overflow_bytes
    return Cell(offset, rowid, record(b"".join(parts), size))


def record(payload: bytes, size: int) -> tuple[Value, ...]:
    """Return the values of a row (section 2.1), which must fill `size` bytes. Raises `ValueError` or `IndexError`.

    The last value of an event may be damaged, and is None then: its body, the third one, has a checksum.
    """
    values = list[Value]()
    try:
        sound = _read_values(payload, values) == size == len(payload)
    except (ValueError, IndexError):
        sound = False
    if sound:
        return tuple(values)
    if len(values) in (3, 4) and values[0] is None and isinstance(values[2], bytes):
        return (*values[:3], None)
    raise UnreadableError("a row is longer or shorter than it says, or has values that no row of ours has")


def _read_values(payload: bytes, values: list[Value]) -> int:
    """Append the values of a row. Returns the offset behind them. Raises `ValueError` or `IndexError`."""
    header, at = _varint(payload, 0)
    body = header
    while at < header:
        kind, at = _varint(payload, at)
        if kind >= 12:
            end = body + (kind - 12 >> 1)
            data = payload[body:end]
            values.append(_text(data) if kind & 1 else data)
        elif 1 <= kind <= 6:
            end = body + _INTEGER_BYTES[kind]
            values.append(int.from_bytes(payload[body:end], signed=True))
        elif kind in (0, 8, 9):
            end = body
            values.append(None if kind == 0 else kind - 8)
        else:
            raise UnreadableError(f"no row of ours has a value of kind {kind}")
        body = end
    if at != header:
        raise UnreadableError("the header of a row is longer than it says")
    return body


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of one to nine bytes (section 1.6), and the offset behind it. Raises `IndexError`."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    for place in range(at + 1, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    return value << 8 | data[at + 8], at + 9


class Log(NamedTuple):
    """The offsets of the page images in a write-ahead log (section 4).

    `newest`: by page, up to the last commit that SQLite itself would see. `others`: all other images, as page and offset.
    `broken`: durable commits follow a damaged frame, where SQLite does not see them.
    """

    newest: dict[int, int]
    others: list[tuple[int, int]]
    broken: bool


def read_log(data: bytes) -> Log:
    """Read a whole log.

    A power cut may leave the last commit half written. That is no damage, because it was never acknowledged. A second commit
    behind it can only exist if the first one was complete once.
    """
    frame_bytes = _FRAME_HEADER_BYTES + PAGE_BYTES
    frames = (len(data) - _LOG_HEADER_BYTES) // frame_bytes
    if frames < 1:
        return Log({}, [], broken=False)
    magic, _, _, _, *salts, first, second = _LOG_HEADER.unpack_from(data)
    order = ">" if magic & 1 else "<"
    sound = magic & ~1 == _MAGIC and _checksum(data[:24], order, (0, 0)) == (first, second)
    if not sound:
        salts = list(_FRAME.unpack_from(data, _LOG_HEADER_BYTES)[2:4])
    newest, pending, others, commits = dict[int, int](), dict[int, int](), list[tuple[int, int]](), 0
    running, intact = (first, second), True
    for frame in range(frames):
        at = _LOG_HEADER_BYTES + frame * frame_bytes
        page, commit, *salted, one, two = _FRAME.unpack_from(data, at)
        place = at + _FRAME_HEADER_BYTES
        if sound and intact:
            running = _checksum(data[at : at + 8], order, running)
            running = _checksum(data[place : place + PAGE_BYTES], order, running)
            intact = salted == salts and running == (one, two)
        if not page or salted != salts:
            continue
        if not intact:
            commits += commit > 0
            others.append((page, place))
            continue
        pending[page] = place
        if commit:
            others += [(each, newest[each]) for each in pending if each in newest]
            newest.update(pending)
            pending = {}
    others += pending.items()
    return Log(newest, others, broken=commits > 1 or (not sound and bool(newest)))


def _checksum(data: bytes, order: str, start: tuple[int, int]) -> tuple[int, int]:
    """Return the checksum of section 4.2."""
    one, two = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(words, words, strict=True):
        one = one + left + two & 0xFFFFFFFF
        two = two + right + one & 0xFFFFFFFF
    return one, two
