"""When what is read of a connected device, and what of it comes twice: pure.

Times are seconds of a clock that never jumps.
"""

from collections.abc import Sequence

from fogline_edge.profiles.ble import Read, full_uuid

ECHO_S = 2.0
"""How long after a read BlueZ's echo of it may come: it takes another way."""


class Turns:
    """Each characteristic in its turn, all of them at once first. What was missed is not made up for."""

    def __init__(self, rules: Sequence[Read], now_s: float) -> None:
        self._interval_s = {full_uuid(each.characteristic): each.interval_s for each in rules}
        self._at_s = dict.fromkeys(self._interval_s, now_s)

    def next(self) -> tuple[str, float] | None:
        """Whose turn it is, and when; `None` if nothing is to be read."""
        return min(self._at_s.items(), key=lambda each: each[1], default=None)

    def over(self, uuid: str, now_s: float) -> None:
        """It was read, or could not be."""
        self._at_s[uuid] = max(self._at_s[uuid] + self._interval_s[uuid], now_s)

    def later(self, uuid: str, at_s: float) -> None:
        """It cannot be read now; not before then."""
        self._at_s[uuid] = at_s

    def forget(self, uuid: str) -> None:
        """The device has no such characteristic."""
        self._at_s.pop(uuid, None)


class Echoes:
    """While a characteristic is listened to, BlueZ tells what was read of it once more, as if the device had notified it.

    It tells so once for each read, before the answer to the read or after it. So of what is read and what is told, one is
    dropped: whichever comes later.
    """

    def __init__(self) -> None:
        self._reading: dict[str, list[bytes]] = {}
        self._expected: dict[str, tuple[bytes, float]] = {}

    def begin(self, uuid: str) -> None:
        """A read begins."""
        self._reading[uuid] = []
        self._expected.pop(uuid, None)

    def told(self, uuid: str, value: bytes, now_s: float) -> bool:
        """Whether a notification is the device's own."""
        if uuid in self._reading:
            self._reading[uuid].append(value)
            return True
        expected = self._expected.get(uuid)
        if expected is None or expected[0] != value or now_s > expected[1]:
            return True
        del self._expected[uuid]
        return False

    def read(self, uuid: str, value: bytes | None, now_s: float, *, listened: bool) -> bool:
        """Whether what was read (`None`: nothing) has not been told already."""
        told = self._reading.pop(uuid, [])
        if value is None or value in told:
            return False
        if listened:
            self._expected[uuid] = value, now_s + ECHO_S
        return True
