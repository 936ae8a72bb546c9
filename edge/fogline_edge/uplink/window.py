"""What of a stream is on its way, and what each outcome means. Pure.

Rows go out in order, several batches at a time. Anything but `accepted` makes everything after the lowest unconfirmed
row unknown: go back there and send again, with the same sequences. A rejected batch is halved until the row that the
bridge will not take stands alone.
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
    """This one row is refused for good."""

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
    _batches: deque[tuple[int, int]] = field(default_factory=deque, init=False)
    _halving_until: int = field(default=0, init=False)
    _limit: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.sent = self.settled

    @property
    def limit(self) -> int:
        """How many rows the next batch may hold, 0 for none at present."""
        if len(self._batches) >= self.in_flight or (self._halving and self._batches):
            return 0
        return self._limit if self._halving else self.batch_events

    @property
    def flying(self) -> int:
        """Batches without an outcome."""
        return len(self._batches)

    @property
    def _halving(self) -> bool:
        return self.settled < self._halving_until

    def push(self, first: int, last: int) -> None:
        """A batch with these sequences was handed over."""
        assert first == self.sent + 1
        self._batches.append((first, last))
        self.sent = last

    def outcome(self, outcome: Outcome) -> Effect:
        """The outcome of the oldest batch. After any effect but `Settle`, everything else in flight is forgotten."""
        first, last = self._batches.popleft()
        if outcome.state is State.ACCEPTED:
            self.settled = last
            return Settle(last)
        self.go_back()
        if outcome.state is not State.REJECTED or outcome.condition == RESOURCE_LIMIT:
            return Pause(str(outcome))
        if outcome.condition in {UNKNOWN_STREAM, CLOSED_STREAM}:
            return HelloAgain(str(outcome))
        if first == last:
            return Quarantine(first, outcome.condition, outcome.description)
        self._halving_until = last
        self._limit = max(1, (last - first + 1) // 2)
        return Halve(f"{outcome}; halving {first}..{last}")

    def go_back(self) -> None:
        """Forget what is in flight: the next batch begins at the lowest unconfirmed row."""
        self._batches.clear()
        self.sent = self.settled
