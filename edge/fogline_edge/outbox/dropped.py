"""How much of a stream was dropped and is not settled. Pure.

A row that is dropped may have been sent before, and may have landed: then it is not lost. So nothing here says what is lost;
the bridge does, which takes of a gap record only what it does not have. What is settled as an event after all is told apart
from what is settled as a gap by what was sent of the gap record.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Dropped:
    """One stream's. `upto`: the row there is a gap record that stands for everything unsettled up to it; 0 if none does.

    `sent_after`, `sent_upto`: the gap record went out for the sequences above the one, up to the other.
    """

    upto: int = 0
    sent_after: int = 0
    sent_upto: int = 0

    def send(self, after: int) -> None:
        """The gap record goes out, for what lies above `after`."""
        self.sent_after = min(self.sent_after, after) if self.sent_upto else after
        self.sent_upto = self.upto

    def settle(self, former: int, settled: int) -> int:
        """The bridge has everything above `former` up to `settled`. How much of that, dropped here, it has as events."""
        last = min(settled, self.upto)
        as_events = max(0, last - max(former, self.sent_upto)) + max(0, min(last, self.sent_after) - former)
        if settled >= self.upto:
            self.upto = self.sent_after = self.sent_upto = 0
        return as_events if last > former else 0
