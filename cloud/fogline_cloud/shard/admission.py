"""Decides which events of a gateway's batch may be written to Kafka, by its stream's *committed* high-water mark. Pure."""

import msgspec

from fogline.events.codec import Range
from fogline.events.event import Lane

StreamKey = tuple[str, str]
"""Gateway and stream."""


class StreamState(msgspec.Struct, kw_only=True):
    """The committed state of a stream."""

    gateway: str
    stream: str
    lane: Lane
    hwm: int = 0  # high-water mark: the last committed sequence
    chain_sequence: int = 0  # sequence of the newest known chain value
    chain: str = ""  # in hex
    landed: int = 0  # events in Kafka; a gap record counts as all of its sequences
    duplicate: int = 0  # events that were received again
    refused: int = 0  # events that the bridge replaced by gap records
    changed_ms: int = 0  # time of the last commit, since 1970, 0 for unknown


class Produce(msgspec.Struct, frozen=True):
    """Write the batch without its first `skip` sequences, which are already in Kafka."""

    skip: int


class Duplicate(msgspec.Struct, frozen=True):
    """All of the batch is committed: accept it and write nothing."""


class Covered(msgspec.Struct, frozen=True):
    """All of the batch is committed or in the open transaction: settle it with the end of that transaction."""


class Hole(msgspec.Struct, frozen=True):
    """Sequences before the batch are missing: the gateway must go back to `expected`."""

    expected: int


class Foreign(msgspec.Struct, frozen=True):
    """The batch follows an older hello, or its stream is of another lane, or is unknown and the batch is not its beginning."""

    why: str


Verdict = Produce | Duplicate | Covered | Hole | Foreign


class Admission:
    """The streams of one shard, committed and in the open transaction. `epochs`: of each gateway's last hello.

    Of two copies of one gateway, only the one that said hello last may send. The other says hello again, and finds that they
    differ.
    """

    def __init__(self, known: dict[StreamKey, StreamState], epochs: dict[str, str] | None = None) -> None:
        self.known = known
        self.epochs = {} if epochs is None else epochs
        self._open: dict[StreamKey, Range] = {}
        self._refused: dict[StreamKey, int] = {}

    def admit(self, span: Range) -> Verdict:
        """Judge a batch. The caller must call `wrote` after it wrote the batch of a `Produce`."""
        if span.epoch and self.epochs.get(span.gateway, span.epoch) != span.epoch:
            return Foreign(f"gateway {span.gateway} has said hello on another connection since")
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
        """Note that the open transaction contains the batch, with `refused` of its events as gap records."""
        key = (span.gateway, span.stream)
        self._open[key] = span
        self._refused[key] = self._refused.get(key, 0) + refused

    def count_duplicates(self, span: Range, events: int) -> StreamState | None:
        """Count `events` of a batch as duplicates. Return the state of their stream, None if nothing of it is committed."""
        if (known := self.known.get((span.gateway, span.stream))) is not None:
            known.duplicate += events
        return known

    def committed(self, now_ms: int) -> list[StreamState]:
        """Move the high-water marks after the commit of the open transaction, at `now_ms`. Return the changed states."""
        changed = []
        for key, span in self._open.items():
            known = self.known.setdefault(key, StreamState(gateway=span.gateway, stream=span.stream, lane=span.lane))
            known.landed += span.last - known.hwm
            known.refused += self._refused[key]
            known.hwm = known.chain_sequence = span.last
            known.chain = span.chain.hex()
            known.changed_ms = now_ms
            changed.append(known)
        self._open.clear()
        self._refused.clear()
        return changed
