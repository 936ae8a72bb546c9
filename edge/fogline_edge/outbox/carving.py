"""Every row that a damaged file and its log still hold, told by the page's own words and by the shape of the row.

SQLite is not asked: one bad page would end its reading, and a bad header would prevent it.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fogline.event import Lane
from fogline_edge.outbox.pages import FRAME_BYTES, PAGE_BYTES, Cell, UnreadableError, Value, cell, cells, children, read_log
from fogline_edge.outbox.recognition import Trace
from fogline_edge.outbox.slots import PAGE_OF_SLOTS_BYTES

MAX_LOG_BYTES = 256 * 1024 * 1024
"""Of a log that is larger, the rest is not looked at."""

_TABLES = frozenset({"stream", "event", "quarantine", "memory", "meta", "kept", "command", "slot"})
_NAME = re.compile(r"[0-9a-f]{16}")
_LANES = frozenset(Lane)
_trace = msgspec.msgpack.Decoder(Trace)


class Images:
    """The pages of a file and its log, read one at a time. What cannot be read is `None`. Close it."""

    def __init__(self, database: Path, log: Path) -> None:
        self._files = [_opened(database), _opened(log)]
        self.count = max(0, _size(database)) // PAGE_BYTES
        self.log = read_log(_head(log))
        self.log_bytes = max(0, _size(log))
        self.count = max(self.count, *self.log.newest, 0)

    def close(self) -> None:
        """Nothing is read any more."""
        for each in self._files:
            if each is not None:
                os.close(each)

    def place(self, number: int) -> int:
        """Where the newest image of a page lies."""
        at = self.log.newest.get(number)
        return at * 2 + 1 if at is not None else (number - 1) * PAGE_BYTES * 2

    def others(self) -> list[tuple[int, int]]:
        """Older images, and those that SQLite would not see, by page and place; the newest first."""
        found = [(page, at * 2 + 1) for page, at in sorted(self.log.others, key=lambda each: -each[1])]
        return found + [(page, (page - 1) * PAGE_BYTES * 2) for page in self.log.newest]

    def at(self, place: int) -> bytes | None:
        """The page image at a place."""
        file = self._files[place & 1]
        if file is None or place < 0:
            return None
        try:
            data = os.pread(file, PAGE_BYTES, place >> 1)
        except OSError:  # the disk itself cannot read it
            return None
        return data if len(data) == PAGE_BYTES else None

    def page(self, number: int) -> bytes | None:
        """The newest image of a page."""
        return self.at(self.place(number)) if 1 <= number <= self.count else None


class Found(NamedTuple):
    """A row. `rank`: 0 where it stands in its table, 1 on a page that no table leads to, 2 in an older image."""

    rank: int
    table: str
    place: int
    cell: Cell


class Carving:
    """All rows, those of rank 0 first. `whole`: the tables that were read without any trouble; known after rank 0."""

    def __init__(self, images: Images) -> None:
        self.whole: set[str] = set()
        self._images = images
        self._seen: set[int] = set()
        self._page: tuple[int, bytes | None] = (-1, None)

    def rows(self) -> Iterator[Found]:
        """Every row that is like one of a table of ours."""
        images = self._images
        for table, root in self._roots().items():
            self.whole.add(table)
            for number in self._tree(table, root):
                yield from self._on(0, number, images.place(number), table)
        for number in range(1, images.count + 1):
            if number not in self._seen:
                yield from self._on(1, number, images.place(number))
        for number, place in images.others():
            yield from self._on(2, number, place)

    def body(self, place: int, offset: int) -> bytes:
        """The body of an event that was found before. Raises `ValueError` or `IndexError`."""
        if self._page[0] != place:
            self._page = place, self._images.at(place)
        page = self._page[1]
        if page is None:
            raise UnreadableError("the disk does not read it any more")
        body = cell(page, page[0], offset, self._images.page).values[3]
        assert isinstance(body, bytes)
        return body

    def _roots(self) -> dict[str, int]:
        """By table, as the schema says; the schema's own page is the first."""
        page, found = self._images.page(1), dict[str, int]()
        if page is None:
            return found
        try:
            for row in cells(page, 1, self._images.page):
                if row is not None and len(row.values) == 5 and row.values[0] == "table" and row.values[1] in _TABLES:
                    name, root = row.values[1], row.values[3]
                    if isinstance(name, str) and isinstance(root, int):
                        found[name] = root
        except UnreadableError:
            pass
        return found

    def _tree(self, table: str, root: int) -> Iterator[int]:
        """The pages of a table's tree, but for those below one that cannot be read."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            page = None if number in self._seen else self._images.page(number)
            if page is None:
                self.whole.discard(table)
                continue
            self._seen.add(number)
            try:
                waiting.extend(reversed(children(page, number)))
            except UnreadableError:
                self.whole.discard(table)
                self._seen.discard(number)
                continue
            yield number

    def _on(self, rank: int, number: int, place: int, table: str = "") -> Iterator[Found]:
        page = self._images.at(place)
        if page is None:
            return
        try:
            for row in cells(page, number, self._images.page):
                found = None if row is None else table_of(row)
                if row is not None and found is not None:
                    yield Found(rank or int(found != table), found, place, row)
                if found != table:
                    self.whole.discard(table)
        except UnreadableError:
            self.whole.discard(table)


def table_of(row: Cell) -> str | None:
    """Whose row this is by its shape, `None` for any other."""
    values, rowid = row.values, row.rowid
    match len(values):
        case 4:
            return _event_or_memory(values)
        case 2:
            table, sound = ("meta", _are(values, str, str)) if rowid else ("kept", _are(values, str, bytes))
        case 5:
            slots = _long(values[0], 16) and _long(values[4], PAGE_OF_SLOTS_BYTES)
            table, sound = "slot", slots and _are(values[1:4], int, str, int)
        case 6:
            table, sound = "quarantine", rowid > 0 and _are(values, int, int, str, str, bytes, str) and _is_place(values[:2])
        case 16:
            table, sound = "stream", rowid > 0 and _is_stream(values)
        case 17:
            table, sound = "command", rowid > 0 and _is_command(values)
        case _:
            return None
    return table if sound else None


def _event_or_memory(values: tuple[Value, ...]) -> str | None:
    first, second, third, fourth = values
    if not isinstance(fourth, bytes):
        return None
    if isinstance(first, int):
        event = isinstance(second, int) and first > 0 and second > 0 and isinstance(third, bytes) and len(third) == 16
        return "event" if event else None
    if isinstance(second, str) and isinstance(third, int) and _long(first, 16):
        try:
            _trace.decode(fourth)
        except msgspec.MsgspecError:
            return None
        return "memory"
    return None


def _is_place(values: Sequence[Value]) -> bool:
    """Stream and sequence that a gateway could have come to."""
    return all(isinstance(each, int) and 0 < each < 1 << 53 for each in values)


def _is_stream(values: tuple[Value, ...]) -> bool:
    _, name, lane, is_open, head, chain, settled, settled_chain, *counts, reason = values
    return (
        _are((name, lane, head, chain, settled, settled_chain, reason), str, str, int, bytes, int, bytes, str)
        and _NAME.fullmatch(str(name)) is not None
        and lane in _LANES
        and is_open in (0, 1)
        and all(isinstance(each, int) and 0 <= each < 1 << 53 for each in (head, settled, *counts))
        and settled <= head  # type: ignore[operator]
    )


def _is_command(values: tuple[Value, ...]) -> bool:
    kinds = (str, str, str, object, bytes, int, int, int, str, str, int, bytes, str, int, object, object)
    content_type, reply, durable, idempotent, status, answer = (values[each] for each in (4, 6, 7, 8, 15, 16))
    return (
        _are(values[1:], *kinds)
        and all(each in (0, 1) for each in (reply, durable, idempotent))
        and isinstance(content_type, str | None)
        and isinstance(status, int | None)
        and isinstance(answer, bytes | None)
    )


def _are(values: tuple[Value, ...], *kinds: type) -> bool:
    return all(isinstance(value, kind) for value, kind in zip(values, kinds, strict=True))


def _long(value: Value, length: int) -> bool:
    return isinstance(value, bytes) and len(value) == length


def log_is_broken(log: Path) -> bool:
    """Whether commits that were durable lie in a log where SQLite does not see them."""
    return _size(log) >= FRAME_BYTES and read_log(_head(log)).broken


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_LOG_BYTES)
    except OSError:
        return b""
