"""In-flight batches of one stream, and the reaction to each AMQP outcome. Pure.

Rows are sent in order, several batches at a time. After any outcome but `accepted`, the state of every row above the
lowest unconfirmed one is unknown: the stream goes back there and sends again, with the same sequences. A rejected batch is
halved until it holds only the row that the bridge refuses.

The window opens slowly, from one small batch on, so that a line that is cut every few kilobytes still makes progress.
"""

from collections import deque
from dataclasses import dataclass, field

from fogline.amqp.outcome import CLOSED_STREAM, RESOURCE_LIMIT, UNKNOWN_STREAM, DeliveryState, Outcome


@dataclass(frozen=True, slots=True)
class Settle:
    """Kafka has every event up to sequence `upto`."""

    upto: int


@dataclass(frozen=True, slots=True)
class QuarantineEvent:
    """The bridge refuses this one row for good. `first` is below `sequence` only for a gap record of several sequences."""

    first: int
    sequence: int
    condition: str
    description: str


@dataclass(frozen=True, slots=True)
class PauseSending:
    """The bridge cannot take the batch now: send again from the lowest unconfirmed row, after a pause."""

    why: str


@dataclass(frozen=True, slots=True)
class Halve:
    """The batch holds a row that the bridge refuses: send again at once, in smaller batches."""

    why: str


@dataclass(frozen=True, slots=True)
class HelloAgain:
    """The gateway and the bridge disagree about the stream: a new hello has to resolve it."""

    why: str


FIRST_EVENTS = 16
"""Rows of the first batch. Each settled batch doubles the next; at full size, several batches are in flight."""

Effect = Settle | QuarantineEvent | PauseSending | Halve | HelloAgain


@dataclass(slots=True)
class InflightWindow:
    """The state of sending one stream.

    `settled`: highest sequence that the bridge has accepted. `batch_events`: limit of rows in a batch; `in_flight`: limit
    of batches without an outcome.
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
        """Limit of rows in the next batch; 0 if none may be sent now."""
        alone = self._halving or self._opening < self.batch_events
        if len(self._batches) >= (1 if alone else self.in_flight):
            return 0
        return min(self._limit, self._opening) if self._halving else self._opening

    @property
    def flying(self) -> int:
        """Number of batches without an outcome."""
        return len(self._batches)

    @property
    def _halving(self) -> bool:
        return self.settled < self._halving_until

    def push(self, first: int, last: int, rows: int) -> None:
        """Add a batch of these sequences. `rows` is smaller than their number if one row is a gap record of several."""
        assert first == self.sent + 1
        self._batches.append((first, last, rows))
        self.sent = last

    def outcome(self, outcome: Outcome) -> Effect:
        """React to the outcome of the oldest batch. After any effect but `Settle`, no batch is in flight."""
        first, last, rows = self._batches.popleft()
        if outcome.state is DeliveryState.ACCEPTED:
            self.settled = last
            self._opening = min(2 * self._opening, self.batch_events)
            return Settle(last)
        self.go_back()
        if outcome.state is not DeliveryState.REJECTED or outcome.condition == RESOURCE_LIMIT:
            return PauseSending(str(outcome))
        if outcome.condition in {UNKNOWN_STREAM, CLOSED_STREAM}:
            return HelloAgain(str(outcome))
        if rows == 1:
            return QuarantineEvent(first, last, outcome.condition, outcome.description)
        self._halving_until = last
        self._limit = max(1, rows // 2)
        return Halve(f"{outcome}; halving {first}..{last}")

    def go_back(self) -> None:
        """Drop the batches in flight: the next one begins at the lowest unconfirmed row."""
        self._batches.clear()
        self.sent = self.settled
