"""The gateway's age: a clock for durations between events. Setting the wall clock cannot change it.

Within a boot it is exact, across crashes too, because the clock since boot goes on. After another boot nobody knows how long
the machine was off, and a device may have restarted with it. So the age then grows by more than any window in which a counter
and a payload, or a message id, mark a duplicate: in doubt an event is stored.
"""

import sqlite3

from fogline_edge.machine.boot import Clock
from fogline_edge.outbox.file.queries import SQL

SAVED_EVERY_S = 60
UNKNOWN_DOWNTIME_S = 600
"""Longer than a counter's window (60 s) and CoAP's (247 s), short against MQTT's (48 h)."""


class Age:
    """The time since the gateway's first start, as far as it is known."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._born_ms = _born_ms(connection, clock)

    @property
    def ms(self) -> int:
        """The age in milliseconds."""
        return self._clock.beacon().boottime_ms - self._born_ms

    @property
    def s(self) -> int:
        """The age in whole seconds."""
        return self.ms // 1000

    def save(self) -> None:
        """Write the age in whole seconds, and the time since boot at which it was reached."""
        age_s = self.s
        at = f"{self._clock.beacon().boot_id} {self._born_ms + age_s * 1000}"
        self._connection.executemany(SQL["set_meta"], [("age_s", str(age_s)), ("age_at", at)])


def boot_of_last_run(connection: sqlite3.Connection) -> str:
    """Return the id of the boot in which a gateway last used the file; "" if it is not known."""
    row = connection.execute(SQL["get_meta"], ("age_at",)).fetchone()
    return str(row[0]).partition(" ")[0] if row else ""


def _born_ms(connection: sqlite3.Connection, clock: Clock) -> int:
    """Return the time since boot at which the age was 0, which may be negative."""
    now = clock.beacon()
    saved, at = (connection.execute(SQL["get_meta"], (key,)).fetchone() for key in ("age_s", "age_at"))
    if saved is None:
        return now.boottime_ms
    boot, _, at_ms = at[0].partition(" ") if at else ("", "", "")
    if boot == now.boot_id:
        return int(at_ms) - int(saved[0]) * 1000
    return now.boottime_ms - (int(saved[0]) + SAVED_EVERY_S + UNKNOWN_DOWNTIME_S) * 1000
