"""The windows of rules in the file: merges events, closes windows, and keeps closed ones for late events.

Each change is in the transaction of the events that it counts. A window closes in the transaction that appends its event, so
after a power cut both are there or neither. Used on the writer's thread; after a rollback, use a new one.
"""

import math
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from fogline.documents.document_error import explained
from fogline.events.event import Arrival, Lane
from fogline.events.identity import Dedup, digest, semantic_id
from fogline.gateway.ledger import RuleOutcome
from fogline_edge.machine.boot import Clock, Moment
from fogline_edge.outbox.file.pages import PAGE_BYTES
from fogline_edge.outbox.file.queries import SQL
from fogline_edge.outbox.memory.recognition import NewEvent
from fogline_edge.outbox.rows.group import Group
from fogline_edge.rules.windows import AGGREGATE_CONTENT_TYPE, WallTime, WindowPlace, WindowRule, WindowState, decode_window

SHARE = 0.05
"""The share of the outbox's file that windows may take."""
ROW_BYTES = 600
"""What a window takes in the file, in bytes, if it has few quantiles."""
CACHED = 4096
"""Windows that stay in memory between two transactions."""
CLOSED_AT_ONCE = 200

_encode = msgspec.msgpack.Encoder().encode
WindowKey = tuple[bytes, int]
Append = Callable[[Group, Arrival, Moment, NewEvent], object]
"""Appends an event of the gateway to the stream of its lane."""


@dataclass(slots=True)
class _Window:
    """A row. `number`: None for one that is not in the file yet."""

    number: int | None
    due_ms: int
    open: bool
    state: WindowState


class WindowTable:
    """The table `window_state`. `due_ms`: the gateway's age at which a window closes or is forgotten; infinity for none."""

    def __init__(self, connection: sqlite3.Connection, tenant: str, clock: Clock) -> None:
        self._connection = connection
        self._tenant = tenant
        self._clock = clock
        (pages,) = connection.execute("PRAGMA max_page_count").fetchone()
        self._most = int(pages * PAGE_BYTES * SHARE / ROW_BYTES)
        self._cache: dict[WindowKey, _Window] = {}
        self._changed: dict[WindowKey, _Window] = {}
        (self._count,) = connection.execute(SQL["count_windows"]).fetchone()
        self.due_ms = self._next_due_ms()

    def merge(
        self, group: Group, rule: WindowRule, arrival: Arrival, values: tuple[float | None, ...], when: Moment
    ) -> RuleOutcome:
        """Merge an event into its window, which is opened if there is none. Returns `MERGED`, or why the event is stored.

        A closed window is opened again, and closes with the next revision.
        """
        place = rule.place(arrival, _time_of(when), group.age_ms)
        key = place.source, place.start_ms
        window = self._find(key)
        if window is None:
            if not place.in_time:
                return RuleOutcome.LATE
            if self._count >= self._most:
                return RuleOutcome.CROWDED
            window = self._open(key, rule, arrival, place)
        elif not window.open:
            window.open, window.due_ms = True, place.due_ms
            window.state.revision += 1
        window.state.add(values, place.time_ns)
        self._changed[key] = window
        self.due_ms = min(self.due_ms, window.due_ms)
        return RuleOutcome.MERGED

    def close_due(self, group: Group, when: Moment, append: Append) -> list[WindowState]:
        """Close some windows that are due, and forget some that were closed long ago. Returns the closed ones."""
        self.write()
        rows = self._connection.execute(SQL["due_windows"], (group.age_ms, CLOSED_AT_ONCE)).fetchall()
        closed = []
        for number, source, start_ms, is_open, blob in rows:
            key = (source, start_ms)
            window = self._cache.get(key) or _Window(number, 0, bool(is_open), _decode(blob))
            if window.open and (left_ms := _time_left(window.state, when)) > 0:
                window.due_ms = group.age_ms + left_ms
                self._changed[key] = window
                continue
            if window.open:
                append(group, *self._event(window.state, group, when))
                closed.append(window.state)
            if window.open and window.state.late_ms:
                window.open, window.due_ms = False, group.age_ms + window.state.late_ms
                self._changed[key] = window
            else:
                self._connection.execute(SQL["forget_window"], (number,))
                self._cache.pop(key, None)
                self._count -= 1
        self.write()
        self.due_ms = self._next_due_ms()
        return closed

    def write(self) -> None:
        """Write the changed windows in the open transaction."""
        changes = []
        for (source, start_ms), window in self._changed.items():
            state = _encode(window.state)
            if window.number is None:
                row = (source, start_ms, window.due_ms, window.open, state)
                ((window.number,),) = self._connection.execute(SQL["open_window"], row).fetchall()
            else:
                changes.append((window.due_ms, window.open, state, window.number))
        if changes:
            self._connection.executemany(SQL["change_window"], changes)
        self._changed.clear()
        while len(self._cache) > CACHED:
            del self._cache[next(iter(self._cache))]

    def _next_due_ms(self) -> float:
        (due_ms,) = self._connection.execute(SQL["next_window"]).fetchone()
        return math.inf if due_ms is None else float(due_ms)

    def _find(self, key: WindowKey) -> _Window | None:
        window = self._cache.get(key)
        if window is None:
            row = self._connection.execute(SQL["find_window"], key).fetchone()
            if row is None:
                return None
            number, due_ms, is_open, blob = row
            window = self._cache[key] = _Window(number, due_ms, bool(is_open), _decode(blob))
        return window

    def _open(self, key: WindowKey, rule: WindowRule, arrival: Arrival, place: WindowPlace) -> _Window:
        state = rule.open(arrival, place, self._clock.beacon().boot_id)
        window = self._cache[key] = _Window(None, place.due_ms, open=True, state=state)
        self._count += 1
        return window

    def _event(self, state: WindowState, group: Group, when: Moment) -> tuple[Arrival, Moment, NewEvent]:
        """Return the event of a window: of its device, with an id of its own for each revision and content."""
        span_ns = state.span_ns(_time_of(when), group.age_ms, self._clock.beacon().boot_id)
        data = state.document(span_ns)
        arrival = Arrival(
            device=state.device,
            channel=state.channel,
            lane=Lane(state.lane),
            content_type=AGGREGATE_CONTENT_TYPE,
            data=data,
            adapter="fogline",
            type=state.type,
            time_ns=span_ns[1] if span_ns is not None else None,
        )
        name = b"%s %d %d %d" % (state.rule.encode(), state.by_age, state.start_ms, state.revision)
        event_id = semantic_id(1, self._tenant, state.device, state.channel, b"aggregate", name, digest(state.channel, data))
        return arrival, when, NewEvent(event_id, Dedup.STRONG, ())


def _time_left(state: WindowState, when: Moment) -> int:
    """Return the milliseconds for which a window goes on by a clock that is right.

    The gateway's age grows by more than the time that passed while the machine was off, so a window may be due too early.
    """
    if state.by_age or not when.synced:
        return 0
    left_ms = state.end_ms - when.time_ns // 1_000_000
    return left_ms if left_ms <= state.length_ms else 0


def _time_of(when: Moment) -> WallTime:
    return WallTime(when.time_ns, when.synced)


def _decode(blob: bytes) -> WindowState:
    try:
        return decode_window(blob)
    except msgspec.MsgspecError as error:
        raise sqlite3.DatabaseError(f"a window cannot be read: {explained(error, WindowState)}") from None
