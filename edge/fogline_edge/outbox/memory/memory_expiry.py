"""Deletes old memory of duplicates, some devices at a time, so that it never takes the room of events.

A device that was active in the last 48 h keeps the rows of that time, and its newest rows of any age. Any other device keeps
nothing. All devices together have a share of the file; if they exceed it, the oldest rows are deleted early. Finished commands
have a share too. A finished command is deleted early only if its deadline is long past, so that a late copy is still refused,
and never while a response may still decide it. No finished command is deleted while the bridge may not have its verdict: the
bridge would ask for the command, and the journal would not have it.
"""

import logging
import sqlite3

from fogline.commands.command import REMEMBER_COMMANDS_S
from fogline_edge.machine.boot import SYSTEM, Clock
from fogline_edge.outbox.file.queries import SQL

REMEMBER_S = 48 * 3600
REMEMBER_EVENTS = 10_000
"""Rows that an active device keeps at any age."""
TRACES_SHARE = 0.15  # of the file, for device identities
COMMANDS_SHARE = 0.05
COMMAND_BYTES = 600
"""The most that a finished command takes, in bytes: its content is deleted."""
LATE_MS = 3_600_000
"""Time after its deadline at which no copy of a command can arrive any more, in milliseconds.

A copy that travelled faster has a later deadline on the gateway's clock."""
BEHIND_ROWS = 5000  # excess rows from which expiry no longer waits for an empty queue
ROUND_S = 3600
DEVICES_AT_ONCE = 100
ROWS_AT_ONCE = 1000
_BEGIN, _LEAVE = 0.9, 0.8
"""Parts of a share at which early deletion begins and ends. In between, nothing is measured."""

_log = logging.getLogger("fogline.outbox")


class MemoryExpiry:
    """Expires memory and commands. Used on the writer's thread, within a transaction."""

    def __init__(self, connection: sqlite3.Connection, max_bytes: int, clock: Clock = SYSTEM) -> None:
        self._commands = _Commands(connection, int(max_bytes * COMMANDS_SHARE / COMMAND_BYTES), clock)
        self._traces = _Rounds(connection, int(max_bytes * TRACES_SHARE))

    @property
    def more(self) -> bool:
        """A round is in progress, or a share may be exceeded: call `step` again."""
        return self._traces.more or self._commands.more

    @property
    def behind(self) -> bool:
        """Rows are added faster than they are deleted."""
        return self._traces.room < -BEHIND_ROWS

    def grown(self, traces: int) -> None:
        """Note the number of rows that were added to `memory`."""
        self._traces.room -= traces

    def hurry(self) -> None:
        """Make the next rounds due now, because the file needs room."""
        self._traces.next_s = self._commands.next_s = 0

    def step(self, age_s: int) -> int:
        """Delete a limited number of rows. Returns that number."""
        return self._commands.step(age_s) + self._traces.step(age_s)


class _Commands:
    """Expiry of finished commands: at most `most` are kept if possible. `more`, `next_s`: as in `_Rounds`."""

    def __init__(self, connection: sqlite3.Connection, most: int, clock: Clock) -> None:
        self.more = False
        self.next_s = 0
        self._connection = connection
        self._most = most
        self._clock = clock

    def step(self, age_s: int) -> int:
        if age_s < self.next_s and not self.more:
            return 0
        self.next_s = age_s + ROUND_S
        told_s = self._told_s(age_s)
        before_s = min(age_s - REMEMBER_COMMANDS_S, told_s)
        gone = self._connection.execute(SQL["forget_commands"], (before_s, ROWS_AT_ONCE)).rowcount
        (count,) = self._connection.execute(SQL["count_commands"]).fetchone()
        if (left := min(count - self._most, ROWS_AT_ONCE - gone)) > 0:
            now = self._clock.beacon()
            late = (now.boot_id, now.boottime_ms - LATE_MS, told_s, left)
            gone += self._connection.execute(SQL["forget_late_commands"], late).rowcount
        self.more = gone == ROWS_AT_ONCE
        return gone

    def _told_s(self, age_s: int) -> int:
        """Return the gateway's age before which all commands have ended whose replies the bridge has accepted.

        Each unsettled row on lane `reply` may be the reply of any command that ended among the last ones.
        """
        (waiting,) = self._connection.execute(SQL["unsettled_replies"]).fetchone()
        if not waiting:
            return age_s + 1
        row = self._connection.execute(SQL["nth_last_end"], (waiting - 1,)).fetchone()
        return int(row[0]) if row else 0


class _Rounds:
    """Expiry of the memory, device by device: once an hour, and when its share is exceeded.

    `room`: number of rows that may be added. `next_s`: the gateway's age at which the next round is due.
    """

    def __init__(self, connection: sqlite3.Connection, max_bytes: int) -> None:
        self.room = 0
        self.next_s = 0
        self._connection = connection
        self._max_bytes = max_bytes
        self._device: str | None = None
        self._too_much_s = 0

    @property
    def more(self) -> bool:
        return self._device is not None or self.room < 0

    def step(self, age_s: int) -> int:
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
            if gone >= ROWS_AT_ONCE:  # the device may have more old rows
                break
            self._device = row[0]
        return gone

    def _measure(self, age_s: int) -> None:
        rows, held_bytes = self._run("size").fetchone()
        left = held_bytes
        self._too_much_s = 0
        if held_bytes > self._max_bytes * _BEGIN:
            for stored_s, size in self._run("ages"):
                if left <= self._max_bytes * _LEAVE or stored_s >= age_s:  # rows of this second are kept
                    break
                self._too_much_s, left = stored_s + 1, left - size
            _log.warning(
                "the memory of duplicates exceeds its share of the outbox: rows older than %d s are deleted",
                age_s - self._too_much_s,
            )
        row_bytes = held_bytes / rows if rows else 1000
        self.room = max(int((self._max_bytes - left) / row_bytes), rows // 10)

    def _forget(self, device: str, age_s: int, limit: int) -> int:
        """Delete old rows of one device. Returns their number."""
        before_s = age_s - REMEMBER_S
        oldest_s, newest_s = self._run("span", device).fetchone()
        if oldest_s < before_s <= newest_s:
            least = self._run("newest", device, REMEMBER_EVENTS - 1).fetchone()
            before_s = min(before_s, least[0]) if least else 0
        before_s = max(before_s, self._too_much_s)
        return self._run("forget", device, before_s, limit).rowcount if oldest_s < before_s else 0

    def _run(self, query: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(SQL[f"{query}_memory"], values)
