"""Reads every row that a damaged file and its log still hold. It finds a row's table by the tree or by the row's shape.

It does not use SQLite, which stops at the first bad frame of a log and cannot open a file with a bad header (decision 0020).
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fogline.events.event import Lane
from fogline_edge.outbox.file.pages import PAGE_BYTES, Cell, UnreadableError, Value, cell, cells, children, read_log
from fogline_edge.outbox.memory.resend_memory import ENTRY
from fogline_edge.outbox.rows.memory_entry import MemoryEntry
from fogline_edge.outbox.rows.streams import SEQUENCE_BITS, SEQUENCE_MASK, decode_rules
from fogline_edge.rules.windows import decode_window

MAX_LOG_BYTES = 256 * 1024 * 1024
"""The most of a log that is read."""

_TABLES = frozenset({"stream", "event", "quarantine", "memory", "meta", "kept", "command", "resend", "window_state"})
_NAME = re.compile(r"[0-9a-f]{16}")
_LANES = frozenset(Lane)
_trace = msgspec.msgpack.Decoder(MemoryEntry)


class Images:
    """The pages of a file and its log, read one at a time. An unreadable page is `None`. Call `close` at the end."""

    def __init__(self, database: Path, log: Path) -> None:
        self._files = [_opened(database), _opened(log)]
        self.count = max(0, _size(database)) // PAGE_BYTES
        self.log = read_log(_head(log))
        self.log_bytes = max(0, _size(log))
        self.count = max(self.count, *self.log.newest, 0)

    def close(self) -> None:
        """Close the files."""
        for each in self._files:
            if each is not None:
                os.close(each)

    def place(self, number: int) -> int:
        """Return the place of the newest image of a page: its offset times 2, plus 1 if it is in the log."""
        at = self.log.newest.get(number)
        return at * 2 + 1 if at is not None else (number - 1) * PAGE_BYTES * 2

    def others(self) -> list[tuple[int, int]]:
        """Return older images, and those that SQLite would not see, as page and place; the newest first."""
        found = [(page, at * 2 + 1) for page, at in sorted(self.log.others, key=lambda each: -each[1])]
        return found + [(page, (page - 1) * PAGE_BYTES * 2) for page in self.log.newest]

    def at(self, place: int) -> bytes | None:
        """Return the page image at a place."""
        file = self._files[place & 1]
        if file is None or place < 0:
            return None
        try:
            data = os.pread(file, PAGE_BYTES, place >> 1)
        except OSError:  # a bad sector: the other pages may be readable
            return None
        return data if len(data) == PAGE_BYTES else None

    def page(self, number: int) -> bytes | None:
        """Return the newest image of a page."""
        return self.at(self.place(number)) if 1 <= number <= self.count else None


class CarvedRow(NamedTuple):
    """A row. `rank`: 0 if its table's tree leads to it, 1 if it is on a page without a tree, 2 if it is in an older image."""

    rank: int
    table: str
    place: int
    cell: Cell


class Carving:
    """Finds all rows, those of rank 0 first. `whole`: the tables that were read completely; valid after rank 0."""

    def __init__(self, images: Images) -> None:
        self.whole: set[str] = set()
        self._images = images
        self._seen: set[int] = set()
        self._page: tuple[int, bytes | None] = (-1, None)

    def rows(self) -> Iterator[CarvedRow]:
        """Yield every row with the shape of one of our tables."""
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
        """Return the body of an event that `rows` has yielded. Raises `ValueError` or `IndexError`."""
        if self._page[0] != place:
            self._page = place, self._images.at(place)
        page = self._page[1]
        if page is None:
            raise UnreadableError("the disk cannot read the page any more")
        return event_of(cell(page, page[0], offset, self._images.page)).body

    def _roots(self) -> dict[str, int]:
        """Return the root page of each table, from the schema, whose own tree begins on page 1."""
        found = dict[str, int]()
        for number in self._tree("sqlite_master", 1):
            page = self._images.page(number)
            try:
                rows = [] if page is None else [row for row in cells(page, number, self._images.page) if row is not None]
            except UnreadableError:
                continue
            for row in rows:
                if len(row.values) == 5 and row.values[0] == "table":
                    name, root = row.values[1], row.values[3]
                    if isinstance(name, str) and isinstance(root, int) and name in _TABLES:
                        found[name] = root
        return found

    def _tree(self, table: str, root: int) -> Iterator[int]:
        """Yield the pages of a table's tree, except those below an unreadable page."""
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

    def _on(self, rank: int, number: int, place: int, table: str = "") -> Iterator[CarvedRow]:
        page = self._images.at(place)
        if page is None:
            return
        try:
            for row in cells(page, number, self._images.page):
                found = None if row is None else table_of(row)
                if row is not None and found is not None:
                    yield CarvedRow(rank or int(found != table), found, place, row)
                if found != table:
                    self.whole.discard(table)
        except UnreadableError:
            self.whole.discard(table)


class CarvedEvent(NamedTuple):
    """A row of `event`. `message`: see `resend_memory`."""

    number: int
    sequence: int
    body: bytes
    message: bytes | None


def event_of(row: Cell) -> CarvedEvent:
    """Return a row of `event`. Raises `ValueError` if it is none."""
    match row.values:
        case (_, _, bytes(body), message) if row.rowid > SEQUENCE_MASK:
            known = message if _long(message, ENTRY.size + 4) else None
            return CarvedEvent(row.rowid >> SEQUENCE_BITS, row.rowid & SEQUENCE_MASK, body, known)  # type: ignore[arg-type]
        case _:
            raise UnreadableError("no row of events")


def table_of(row: Cell) -> str | None:
    """Return the table whose rows have this shape, or None."""
    values, rowid = row.values, row.rowid
    match len(values):
        case 4:
            return _event_or_memory(values, rowid)
        case 2:
            return _pair(values, rowid)
        case 6 if values[0] is None:
            table, sound = "window_state", rowid > 0 and _is_window(values)
        case 6:
            table, sound = "quarantine", rowid > 0 and _are(values, int, int, str, str, bytes, str) and _is_place(values[:2])
        case 19:
            table, sound = "stream", rowid > 0 and _is_stream(values)
        case 17:
            table, sound = "command", rowid > 0 and _is_command(values)
        case _:
            return None
    return table if sound else None


def _pair(values: tuple[Value, ...], rowid: int) -> str | None:
    if _are(values, str, str) and rowid:
        return "meta"
    if rowid and values[0] is None and isinstance(values[1], bytes) and len(values[1]) % ENTRY.size == 0:
        return "resend"
    return "kept" if _are(values, str, bytes) and not rowid else None


def _event_or_memory(values: tuple[Value, ...], rowid: int) -> str | None:
    first, second, third, fourth = values
    if rowid > SEQUENCE_MASK and isinstance(third, bytes):
        return "event"  # whatever its other values are: the body has a checksum
    if isinstance(second, str) and isinstance(third, int) and isinstance(fourth, bytes) and _long(first, 16):
        try:
            _trace.decode(fourth)
        except msgspec.MsgspecError:
            return None
        return "memory"
    return None


def _is_place(values: Sequence[Value]) -> bool:
    """Return True for a plausible stream number and sequence."""
    return all(isinstance(each, int) and 0 < each < 1 << 53 for each in values)


def _is_stream(values: tuple[Value, ...]) -> bool:
    _, name, lane, is_open, head, settled, settled_commit_id, *counts = values
    reason, *counts_since, rules = counts[7:]
    return (
        _are((name, lane, head, settled, settled_commit_id, reason), str, str, int, int, bytes, str)
        and _NAME.fullmatch(str(name)) is not None
        and lane in _LANES
        and is_open in (0, 1)
        and all(isinstance(each, int) and 0 <= each < 1 << 53 for each in (head, settled, *counts[:7], *counts_since))
        and settled <= head  # type: ignore[operator]
        and _is_rules(rules)
    )


def _is_rules(value: Value) -> bool:
    try:
        return isinstance(value, str) and decode_rules(value) is not None
    except msgspec.MsgspecError:
        return False


def _is_window(values: tuple[Value, ...]) -> bool:
    _, source, start_ms, due_ms, is_open, state = values
    if not (_long(source, 16) and is_open in (0, 1) and _are((start_ms, due_ms, state), int, int, bytes)):
        return False
    try:
        return decode_window(state) is not None  # type: ignore[arg-type]
    except msgspec.MsgspecError:
        return False


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
    """Return True if the log holds durable commits that SQLite would not see."""
    return read_log(_head(log)).broken


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
