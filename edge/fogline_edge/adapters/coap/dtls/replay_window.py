"""The window of sequence numbers by which a replayed record is recognised (RFC 6347, section 4.1.2.6). Pure."""

WINDOW = 64


class ReplayWindow:
    """The latest `WINDOW` sequence numbers of one epoch. An older one counts as replayed."""

    __slots__ = ("_newest", "_seen")

    def __init__(self) -> None:
        self._newest = -1
        self._seen = 0  # bit n: the number `_newest - n` was seen

    def begin_at(self, sequence: int) -> None:
        """Note a record that was made after all earlier ones were refused: none of them counts any more."""
        self._newest, self._seen = sequence, (1 << WINDOW) - 1

    def is_new(self, sequence: int) -> bool:
        """Return True if no record with this number was noted, and it is not too old to know."""
        age = self._newest - sequence
        return age < 0 or (age < WINDOW and not self._seen >> age & 1)

    def note(self, sequence: int) -> bool:
        """Note a record whose authenticity was verified. Return True if it is the newest so far."""
        ahead = sequence - self._newest
        if ahead > 0:
            self._seen = (self._seen << min(ahead, WINDOW) | 1) & (1 << WINDOW) - 1
            self._newest = sequence
            return True
        self._seen |= 1 << -ahead
        return False
