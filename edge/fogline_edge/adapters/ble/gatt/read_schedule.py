"""Schedule of the reads of a connected device, and detection of BlueZ's echoes of them. Pure; times of a monotonic clock."""

from collections.abc import Sequence

from fogline_edge.profiles.ble import Read, full_uuid

ECHO_S = 2.0
"""Longest time between a read and BlueZ's echo of it, which takes another path."""


class ReadSchedule:
    """Reads each characteristic at once, then at its interval. A read that was missed is not repeated."""

    def __init__(self, rules: Sequence[Read], now_s: float) -> None:
        self._interval_s = {full_uuid(each.characteristic): each.interval_s for each in rules}
        self._at_s = dict.fromkeys(self._interval_s, now_s)

    def next(self) -> tuple[str, float] | None:
        """Return the next characteristic and its time; `None` if nothing is to be read."""
        return min(self._at_s.items(), key=lambda each: each[1], default=None)

    def done(self, uuid: str, now_s: float) -> None:
        """Schedule the next read, after one that succeeded or failed."""
        self._at_s[uuid] = max(self._at_s[uuid] + self._interval_s[uuid], now_s)

    def postpone(self, uuid: str, at_s: float) -> None:
        """Read it at `at_s` instead."""
        self._at_s[uuid] = at_s

    def remove(self, uuid: str) -> None:
        """Do not read it any more: the device has no such characteristic."""
        self._at_s.pop(uuid, None)


class ReadEchoes:
    """Detects notifications that BlueZ makes of a read.

    While a client is subscribed, BlueZ reports each value read as a notification too, before or after it. The later is dropped.
    """

    def __init__(self) -> None:
        self._reading: dict[str, list[bytes]] = {}
        self._expected: dict[str, tuple[bytes, float]] = {}

    def read_begins(self, uuid: str) -> None:
        """Note the begin of a read."""
        self._reading[uuid] = []
        self._expected.pop(uuid, None)

    def is_echo(self, uuid: str, value: bytes, now_s: float) -> bool:
        """Return True if a notification repeats the result of a read."""
        if uuid in self._reading:
            self._reading[uuid].append(value)
            return False
        expected = self._expected.get(uuid)
        if expected is None or expected[0] != value or now_s > expected[1]:
            return False
        del self._expected[uuid]
        return True

    def read_ends(self, uuid: str, value: bytes | None, now_s: float, *, subscribed: bool) -> bool:
        """Return True if the result of a read was notified before. `value` is `None` after a failed read."""
        notified = self._reading.pop(uuid, [])
        if value is None or value in notified:
            return True
        if subscribed:
            self._expected[uuid] = value, now_s + ECHO_S
        return False
