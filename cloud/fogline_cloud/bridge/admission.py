"""What of a gateway's batch may land in Kafka now. Pure.

The high-water mark of a stream is what is *committed*, never what the open transaction holds: a delivery that overlaps
the open transaction is answered with that transaction's end.
"""

import msgspec

from fogline.codec import Range
from fogline.event import Lane

StreamKey = tuple[str, str]
"""Gateway and stream."""


class Known(msgspec.Struct, kw_only=True):
    """What is committed of a stream. `chain` (hex) is the newest chain value known, of `chain_sequence`.

    `landed`: events in Kafka, gap records counted by the sequences that they stand for; `duplicate`: events that came
    again; `refused`: events that a gap record of the bridge stands for.
    """

    gateway: str
    stream: str
    lane: Lane
    hwm: int = 0
    chain_sequence: int = 0
    chain: str = ""
    landed: int = 0
    duplicate: int = 0
    refused: int = 0


class Produce(msgspec.Struct, frozen=True):
    """Write the batch without its first `skip` sequences, which are there."""

    skip: int


class Duplicate(msgspec.Struct, frozen=True):
    """All of it is committed: accept, write nothing."""


class Covered(msgspec.Struct, frozen=True):
    """All of it is committed or in the open transaction: answer with the transaction's end."""


class Hole(msgspec.Struct, frozen=True):
    """Something before it is missing: the gateway must go back."""

    expected: int


class Foreign(msgspec.Struct, frozen=True):
    """The stream is not known, and this is not its beginning; or it belongs to another lane."""

    why: str


Verdict = Produce | Duplicate | Covered | Hole | Foreign


class Admission:
    """The streams of one shard."""

    def __init__(self, known: dict[StreamKey, Known]) -> None:
        self.known = known
        self._open: dict[StreamKey, Range] = {}
        self._refused: dict[StreamKey, int] = {}

    def admit(self, span: Range) -> Verdict:
        """Judge a batch. A `Produce` must be followed by `wrote`."""
        key = (span.gateway, span.stream)
        known = self.known.get(key)
        pending = self._open.get(key)
        lane = known.lane if known else pending.lane if pending else span.lane
        if lane is not span.lane:
            return Foreign(f"stream {span.stream} is of lane {lane}")
        hwm = known.hwm if known else 0
        if span.last <= hwm:
            return Duplicate()
        expected = max(hwm, pending.last if pending else 0) + 1
        if span.last < expected:
            return Covered()
        if span.first > expected:
            return Hole(expected) if expected > 1 else Foreign(f"stream {span.stream} is not known here")
        return Produce(expected - span.first)

    def wrote(self, span: Range, refused: int = 0) -> None:
        """The batch is in the open transaction now, up to its last sequence; `refused` of its events as gap records."""
        key = (span.gateway, span.stream)
        self._open[key] = span
        self._refused[key] = self._refused.get(key, 0) + refused

    def count_duplicates(self, span: Range, events: int) -> None:
        """`events` of a batch were there already."""
        if (known := self.known.get((span.gateway, span.stream))) is not None:
            known.duplicate += events

    def committed(self) -> list[Known]:
        """The open transaction is committed: its streams as they stand now."""
        changed = []
        for key, span in self._open.items():
            known = self.known.setdefault(key, Known(gateway=span.gateway, stream=span.stream, lane=span.lane))
            known.landed += span.last - known.hwm
            known.refused += self._refused[key]
            known.hwm = known.chain_sequence = span.last
            known.chain = span.chain.hex()
            changed.append(known)
        self._open.clear()
        self._refused.clear()
        return changed
