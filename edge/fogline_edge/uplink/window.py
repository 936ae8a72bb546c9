"""What of a stream is on its way, and what each outcome means. Pure.

Rows go out in order, several batches at a time. Anything but `accepted` makes everything after the lowest unconfirmed
row unknown: go back there and send again, with the same sequences. A rejected batch is halved until the row that the
bridge will not take stands alone.

It opens slowly, one small batch and then twice as much, so that a line that is cut every few kilobytes gets something
through each time.
"""

from collections import deque
from dataclasses import dataclass, field

from fogline.amqp.outcome import CLOSED_STREAM, RESOURCE_LIMIT, UNKNOWN_STREAM, Outcome, State


@dataclass(frozen=True, slots=True)
class Settle:
    """Everything up to `upto` is in Kafka."""

    upto: int


@dataclass(frozen=True, slots=True)
class Quarantine:
    """This one row is refused for good. `first` is below `sequence` only for a gap record, which stands for both."""

    first: int
    sequence: int
    condition: str
    description: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Not now: begin again at the lowest unconfirmed row after a while."""

    why: str


@dataclass(frozen=True, slots=True)
class Halve:
    """The batch holds a row that the bridge will not take: begin again at once, with smaller batches."""

    why: str


@dataclass(frozen=True, slots=True)
class HelloAgain:
    """The two sides disagree about the stream: a new hello has to sort it out."""

    why: str


FIRST_EVENTS = 16
"""Rows of the first batch; each that is settled lets the next have twice as many, and only then several fly."""

Effect = Settle | Quarantine | Pause | Halve | HelloAgain


@dataclass(slots=True)
class Window:
    """One stream's way to the bridge.

    `settled`: the highest sequence that the bridge has. `batch_events`: the most rows in a batch; `in_flight`: the
    most batches without an outcome.
    """

    settled: int
    batch_events: int
    in_flight: int
    sent: int = field(init=False)
    _batches: deque[tuple[int, int, int]] = field(default_factory=deque, init=False)
    _halving_until: int = field(default=0, init=False)
    _limit: int = field(default=0, init=False)
    _opening: int = field(init=False)

    def __post_init__(self) -> None:
        self.sent = self.settled
        self._opening = min(FIRST_EVENTS, self.batch_events)

    @property
    def limit(self) -> int:
        """How many rows the next batch may hold, 0 for none at present."""
        alone = self._halving or self._opening < self.batch_events
        if len(self._batches) >= (1 if alone else self.in_flight):
            return 0
        return min(self._limit, self._opening) if self._halving else self._opening

    @property
    def flying(self) -> int:
        """Batches without an outcome."""
        return len(self._batches)

    @property
    def _halving(self) -> bool:
        return self.settled < self._halving_until

    def push(self, first: int, last: int, rows: int) -> None:
        """A batch with these sequences was handed over. `rows`: fewer, if one stands for many of them."""
        assert first == self.sent + 1
        self._batches.append((first, last, rows))
        self.sent = last

    def outcome(self, outcome: Outcome) -> Effect:
        """The outcome of the oldest batch. After any effect but `Settle`, everything else in flight is forgotten."""
        first, last, rows = self._batches.popleft()
        if outcome.state is State.ACCEPTED:
            self.settled = last
            self._opening = min(2 * self._opening, self.batch_events)
            return Settle(last)
        self.go_back()
        if outcome.state is not State.REJECTED or outcome.condition == RESOURCE_LIMIT:
            return Pause(str(outcome))
        if outcome.condition in {UNKNOWN_STREAM, CLOSED_STREAM}:
            return HelloAgain(str(outcome))
        if rows == 1:
            return Quarantine(first, last, outcome.condition, outcome.description)
        self._halving_until = last
        self._limit = max(1, rows // 2)
        return Halve(f"{outcome}; halving {first}..{last}")

    def go_back(self) -> None:
        """Forget what is in flight: the next batch begins at the lowest unconfirmed row."""
        self._batches.clear()
        self.sent = self.settled
