"""What the memory of resends lets go of, some devices at a time, so that it never takes the room of events.

Of a device that was heard in the last 48 h there stays what came in them, and its newest rows whenever they came; of any other
nothing. All devices together have a share of the file: what is beyond it goes before its time, the oldest first. So have
commands that are over; of them only those go before their time whose deadline has passed for long, so that a late copy is
refused, and none that an answer may still decide.
"""

import logging
import sqlite3

from fogline_edge.boot import SYSTEM, Clock
from fogline_edge.outbox.queries import SQL

REMEMBER_S = 48 * 3600
REMEMBER_EVENTS = 10_000
"""So many of a device that is heard, however old they are."""
REMEMBER_COMMANDS_S = 8 * 24 * 3600
"""Longer than any command may live, so that a copy that comes late is known."""
TRACES_SHARE, SLOTS_SHARE = 0.15, 0.05
"""Of the file, the most that is remembered of what devices say of themselves, and of what protocols say."""
COMMANDS_SHARE = 0.05
COMMAND_BYTES = 600
"""What a command that is over takes, or less: its content is gone by then."""
LATE_MS = 3_600_000
"""So long after its deadline no copy of a command comes that has a later one, having travelled faster."""
BEHIND_ROWS = 5000
"""So many rows too many are no time for patience."""
ROUND_S = 3600
DEVICES_AT_ONCE = 100
ROWS_AT_ONCE = 1000
_BEGIN, _LEAVE = 0.9, 0.8
"""Of its share: from where on there is too much, and what then stays. In between, nothing is measured."""

_log = logging.getLogger("fogline.outbox")


class Forgetting:
    """Used on the writer's thread, within a transaction. `more`: there is something to do at once."""

    def __init__(self, connection: sqlite3.Connection, max_bytes: int, clock: Clock = SYSTEM) -> None:
        self._commands = _Commands(connection, int(max_bytes * COMMANDS_SHARE / COMMAND_BYTES), clock)
        self._traces = _Rounds(connection, "memory", REMEMBER_EVENTS, int(max_bytes * TRACES_SHARE))
        self._slots = _Rounds(connection, "slot", REMEMBER_EVENTS // 64, int(max_bytes * SLOTS_SHARE))

    @property
    def more(self) -> bool:
        """A round is under way, or there may be too much."""
        return self._traces.more or self._slots.more or self._commands.more

    @property
    def behind(self) -> bool:
        """More comes than goes."""
        return min(self._traces.room, self._slots.room) < -BEHIND_ROWS

    def grown(self, traces: int, slots: int) -> None:
        """So many rows have been added to each table."""
        self._traces.room -= traces
        self._slots.room -= slots

    def hurry(self) -> None:
        """Room is wanted: the next rounds are due."""
        self._traces.next_s = self._slots.next_s = self._commands.next_s = 0

    def go_on(self, age_s: int) -> int:
        """Do a little. Returns how many rows went."""
        return self._commands.go_on(age_s) + self._traces.go_on(age_s) + self._slots.go_on(age_s)


class _Commands:
    """Those that are over, at most `most` of them if that can be. `more`, `next_s`: as in `_Rounds`."""

    def __init__(self, connection: sqlite3.Connection, most: int, clock: Clock) -> None:
        self.more = False
        self.next_s = 0
        self._connection = connection
        self._most = most
        self._clock = clock

    def go_on(self, age_s: int) -> int:
        if age_s < self.next_s and not self.more:
            return 0
        self.next_s = age_s + ROUND_S
        gone = self._connection.execute(SQL["forget_commands"], (age_s - REMEMBER_COMMANDS_S, ROWS_AT_ONCE)).rowcount
        (count,) = self._connection.execute(SQL["count_commands"]).fetchone()
        if (left := min(count - self._most, ROWS_AT_ONCE - gone)) > 0:
            now = self._clock.beacon()
            late = (now.boot_id, now.boottime_ms - LATE_MS, left)
            gone += self._connection.execute(SQL["forget_late_commands"], late).rowcount
        self.more = gone == ROWS_AT_ONCE
        return gone


class _Rounds:
    """From device to device through one table: once an hour, and when there is too much. `room`: for so many rows more.

    `next_s`: at which age the next round is due.
    """

    def __init__(self, connection: sqlite3.Connection, table: str, least: int, max_bytes: int) -> None:
        self.room = 0
        self.next_s = 0
        self._connection = connection
        self._table = table
        self._least = least
        self._max_bytes = max_bytes
        self._device: str | None = None
        self._too_much_s = 0

    @property
    def more(self) -> bool:
        return self._device is not None or self.room < 0

    def go_on(self, age_s: int) -> int:
        if self._device is None:
            if age_s < self.next_s and self.room >= 0:
                return 0
            self._measure(age_s)
            self._device = ""
        gone = 0
        for _ in range(DEVICES_AT_ONCE):
            row = self._run("next_device", self._device).fetchone()
            if row is None:
                self._device, self.next_s = None, age_s + ROUND_S
                break
            gone += self._forget(row[0], age_s, ROWS_AT_ONCE - gone)
            if gone >= ROWS_AT_ONCE:  # it may have more of them
                break
            self._device = row[0]
        return gone

    def _measure(self, age_s: int) -> None:
        rows, held_bytes = self._run("size").fetchone()
        left = held_bytes
        self._too_much_s = 0
        if held_bytes > self._max_bytes * _BEGIN:
            for stored_s, size in self._run("ages"):
                if left <= self._max_bytes * _LEAVE or stored_s >= age_s:  # what comes now is kept
                    break
                self._too_much_s, left = stored_s + 1, left - size
            _log.warning(
                "the memory of resends (%s) is beyond its share of the outbox: what is older than %d s is forgotten",
                self._table, age_s - self._too_much_s,
            )  # fmt: skip
        row_bytes = held_bytes / rows if rows else 1000
        self.room = max(int((self._max_bytes - left) / row_bytes), rows // 10)

    def _forget(self, device: str, age_s: int, limit: int) -> int:
        """Of one device."""
        before_s = age_s - REMEMBER_S
        oldest_s, newest_s = self._run("span", device).fetchone()
        if oldest_s < before_s <= newest_s:
            least = self._run("newest", device, self._least - 1).fetchone()
            before_s = min(before_s, least[0]) if least else 0
        before_s = max(before_s, self._too_much_s)
        return self._run("forget", device, before_s, limit).rowcount if oldest_s < before_s else 0

    def _run(self, query: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(SQL[f"{query}_{self._table}"], values)
