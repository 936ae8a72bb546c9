"""SQLite's file format, read without SQLite: what a damaged file still holds. Pure: pages in, rows out.

Sections are those of https://sqlite.org/fileformat2.html. Only what the outbox's own files have is known here: pages of 4096
bytes, nothing reserved at their ends, text in UTF-8, no vacuum.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

PAGE_BYTES = 4096
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
"""More than any row of the outbox has."""

INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
_INTERIOR = (INDEX_INTERIOR, TABLE_INTERIOR)
_ON_A_TABLE_PAGE = PAGE_BYTES - 35
_ON_AN_INDEX_PAGE = (PAGE_BYTES - 12) * 64 // 255 - 23
_LEAST = (PAGE_BYTES - 12) * 32 // 255 - 23
_ON_AN_OVERFLOW_PAGE = PAGE_BYTES - 4
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
FRAME_BYTES = _FRAME_HEADER_BYTES + PAGE_BYTES
_FRAME = struct.Struct(">IIIIII")
_LOG_HEADER = struct.Struct(">IIIIIIII")
_MAGIC = 0x377F0682

Value = int | str | bytes | None
PageOf = Callable[[int], bytes | None]
"""A page by its number, from 1; `None`: it cannot be read."""


class UnreadableError(ValueError):
    """These bytes are not what they should be."""


class Cell(NamedTuple):
    """One row as it stands on its page. `rowid` is 0 where the table has none."""

    offset: int
    rowid: int
    values: tuple[Value, ...]


def kind_of(page: bytes, number: int) -> int:
    """What kind of b-tree page this calls itself (section 1.6); anything, if it is none."""
    return page[100 if number == 1 else 0]


def places(page: bytes, number: int) -> tuple[int, ...]:
    """Where the cells of a b-tree page are. Raises `UnreadableError`."""
    begin = 100 if number == 1 else 0
    kind = page[begin]
    if kind not in (INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF):
        raise UnreadableError(f"page {number} is no page of a b-tree")
    first = begin + (12 if kind in _INTERIOR else 8)
    count = int.from_bytes(page[begin + 3 : begin + 5])
    if first + 2 * count > PAGE_BYTES:
        raise UnreadableError(f"page {number} cannot hold {count} cells")
    return struct.unpack_from(f">{count}H", page, first)


def children(page: bytes, number: int) -> tuple[int, ...]:
    """The pages below an interior page, from left to right; none below a leaf. Raises `UnreadableError`."""
    at = places(page, number)
    begin = 100 if number == 1 else 0
    if page[begin] not in _INTERIOR:
        return ()
    below = [int.from_bytes(page[each : each + 4]) for each in at]
    return (*below, int.from_bytes(page[begin + 8 : begin + 12]))


def cells(page: bytes, number: int, page_of: PageOf) -> Iterator[Cell | None]:
    """The rows on a page in their order, `None` for each that cannot be read. Raises `UnreadableError` before the first."""
    at, kind = places(page, number), kind_of(page, number)
    if kind == TABLE_INTERIOR:
        return
    for offset in at:
        try:
            yield cell(page, kind, offset, page_of)
        except (ValueError, IndexError):
            yield None


def cell(page: bytes, kind: int, offset: int, page_of: PageOf) -> Cell:
    """The row at one place (section 1.6). Raises `ValueError` or `IndexError`."""
    at, rowid, most = offset, 0, _ON_AN_INDEX_PAGE
    if kind == INDEX_INTERIOR:
        at += 4
    size, at = _varint(page, at)
    if kind == TABLE_LEAF:
        rowid, at = _varint(page, at)
        most = _ON_A_TABLE_PAGE
    if size > MAX_PAYLOAD_BYTES:
        raise UnreadableError("too large to be a row")
    if size <= most:
        return Cell(offset, rowid, record(page[at : at + size], size))
    local = _LEAST + (size - _LEAST) % _ON_AN_OVERFLOW_PAGE
    local = local if local <= most else _LEAST
    parts, left = [page[at : at + local]], size - local
    following = int.from_bytes(page[at + local : at + local + 4])
    while left > 0:
        overflow = page_of(following)
        if overflow is None:
            raise UnreadableError(f"page {following} is missing")
        following = int.from_bytes(overflow[:4])
        parts.append(overflow[4 : 4 + left])
        left -= _ON_AN_OVERFLOW_PAGE
    return Cell(offset, rowid, record(b"".join(parts), size))


def record(payload: bytes, size: int) -> tuple[Value, ...]:
    """The values of a row (section 2.1), which must fill `size` bytes. Raises `ValueError` or `IndexError`."""
    header, at = _varint(payload, 0)
    body, values = header, list[Value]()
    while at < header:
        kind = payload[at]
        at += 1
        if kind >= 0x80:
            kind, at = _varint(payload, at - 1)
        if kind >= 12:
            end = body + (kind - 12 >> 1)
            data = payload[body:end]
            values.append(data.decode() if kind & 1 else data)
        elif 1 <= kind <= 6:
            end = body + _INTEGER_BYTES[kind]
            values.append(int.from_bytes(payload[body:end], signed=True))
        elif kind in (0, 8, 9):
            end = body
            values.append(None if kind == 0 else kind - 8)
        else:
            raise UnreadableError(f"no row of ours has a value of kind {kind}")
        body = end
    if at != header or body != size or len(payload) != size:
        raise UnreadableError("a row is longer or shorter than it says")
    return tuple(values)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes (section 1.6), and where the next begins. Raises `IndexError`."""
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
    """A write-ahead log (section 4): where page images lie in it.

    `newest`: of each page, up to the last commit that SQLite itself would see. `others`: everything else, by page and
    place. `broken`: commits that were durable lie behind a damaged frame, where SQLite does not see them.
    """

    newest: dict[int, int]
    others: list[tuple[int, int]]
    broken: bool


def read_log(data: bytes) -> Log:
    """What a log holds. `data`: all of it.

    A power cut may leave the last commit half written: that is no damage, it was never acknowledged. A second commit
    behind it can only be there if the first one was whole once.
    """
    frames = (len(data) - _LOG_HEADER_BYTES) // FRAME_BYTES
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
        at = _LOG_HEADER_BYTES + frame * FRAME_BYTES
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
    """Section 4.2."""
    one, two = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for left, right in zip(words, words, strict=True):
        one = one + left + two & 0xFFFFFFFF
        two = two + right + one & 0xFFFFFFFF
    return one, two
