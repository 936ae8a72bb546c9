"""The gateway's own age, by which it is told how long ago something came; no clock that is set can change it.

Within a boot it is exact, across crashes too: the time since the boot went on. After another boot nobody knows how long the
machine was off, and a device may have started again with it: that counts as longer than any window in which a counter
and a payload, or a message id, make a resend. What is in doubt is kept.
"""

import sqlite3

from fogline_edge.boot import Clock
from fogline_edge.outbox.queries import SQL

SAVED_EVERY_S = 60
UNKNOWN_DOWNTIME_S = 600
"""Longer than a counter's window (60 s) and CoAP's (247 s), short against MQTT's (48 h)."""


class Age:
    """Since the first start. `ms` and `s`: now."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._born_ms = _born_ms(connection, clock)

    @property
    def ms(self) -> int:
        """In milliseconds."""
        return self._clock.beacon().boottime_ms - self._born_ms

    @property
    def s(self) -> int:
        """In whole seconds."""
        return self.ms // 1000

    def save(self) -> None:
        """Write it down: whole seconds, and when in this boot they were full."""
        age_s = self.s
        at = f"{self._clock.beacon().boot_id} {self._born_ms + age_s * 1000}"
        self._connection.executemany(SQL["set_meta"], [("age_s", str(age_s)), ("age_at", at)])


def _born_ms(connection: sqlite3.Connection, clock: Clock) -> int:
    """When, by the clock of this boot, the age was 0."""
    now, saved_s, at = clock.beacon(), _get(connection, "age_s"), _get(connection, "age_at")
    if saved_s is None:
        return now.boottime_ms
    boot, _, at_ms = (at or "").partition(" ")
    if boot == now.boot_id:
        return int(at_ms) - int(saved_s) * 1000
    return now.boottime_ms - (int(saved_s) + SAVED_EVERY_S + UNKNOWN_DOWNTIME_S) * 1000


def _get(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute(SQL["get_meta"], (key,)).fetchone()
    return str(row[0]) if row else None
