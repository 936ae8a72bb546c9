"""What Kafka holds of each stream and partition, and from where on the tables lack its records. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from fogline.events.event import Lane
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.kafka.records import COPIED, REBUILT, StreamPosition, known_position
from fogline_cloud.ledger.ranges import Span, SpanCollector, without
from fogline_cloud.shard.admission import StreamKey

StreamPart = tuple[str, str, int]
"""Gateway, stream, and a partition that has records of the stream: one, and another one after `fogline topics reshard`."""


class StreamTail(msgspec.Struct, frozen=True):
    """A stream as far as a table has it: its last sequence."""

    lane: Lane
    last: int


@dataclass(slots=True)
class TableProgress:
    """The part of the records that one table has. `tails`: the last sequence of each stream, by partition, that it has.

    `clients`: by partition, how many records without a stream follow the last one with a stream.
    """

    tails: Mapping[StreamPart, StreamTail] = field(default_factory=dict)
    clients: Mapping[Partition, int] = field(default_factory=dict)

    def streams(self) -> dict[StreamKey, StreamTail]:
        """Return the last sequence of each stream in any partition."""
        found: dict[StreamKey, StreamTail] = {}
        for (gateway, stream, _), tail in self.tails.items():
            key = (gateway, stream)
            found[key] = max(found.get(key, tail), tail, key=lambda each: each.last)
        return found


@dataclass(slots=True)
class _Reading:
    """The position of a table in a partition: the offset behind the last record that it has."""

    next: int = 0
    covered: bool = True  # it has every record so far
    clients: int = 0  # records without a stream behind the last one with a stream


class HeldRecords:
    """The records of the raw topics, taken in the order of each partition.

    `tables`: by name, how far a table has the former records. It has those of a partition up to one, and none behind it,
    because a flow reads a partition in its order. Only records that `rebuild` has appended are out of order: those behind the
    first one that a table lacks are read again, which does no harm, because they are marked as replayed. Gap records in place
    of lost ones count as had.
    `lanes`, `shards`: of each stream, its lane and the partitions with its records. `ends`: the last record with a stream of
    each partition.
    """

    def __init__(self, tables: Mapping[str, TableProgress]) -> None:
        self.records = 0
        self.lanes: dict[StreamKey, Lane] = {}
        self.shards: dict[StreamKey, set[int]] = defaultdict(set)
        self.ends: dict[Partition, StreamPosition] = {}
        self.clients: dict[Partition, int] = defaultdict(int)
        self._spans: dict[StreamKey, SpanCollector] = defaultdict(SpanCollector)
        self._tables = tables
        self._readings: dict[str, dict[Partition, _Reading]] = {name: defaultdict(_Reading) for name in tables}

    def take(self, partition: Partition, offset: int, headers: Sequence[tuple[str, bytes]], value: bytes) -> None:
        """Add a record of Kafka."""
        position = known_position(headers, value)
        self.add(partition, position)
        marks = {name for name, _ in headers} & {REBUILT, COPIED}
        for name, table in self._tables.items():
            reading = self._readings[name][partition]
            if (reading.covered or not marks) and (REBUILT in marks or _has(table, position, partition)):
                reading.next, reading.covered, reading.clients = offset + 1, True, 0
            elif position is None and reading.covered and reading.clients < table.clients.get(partition, 0):
                reading.next, reading.clients = offset + 1, reading.clients + 1
            else:
                reading.covered = False

    def add(self, partition: Partition, position: StreamPosition | None) -> None:
        """Count a record as there."""
        self.records += 1
        if position is None:
            self.clients[partition] += 1
            return
        key = (position.gateway, position.stream)
        self.lanes.setdefault(key, position.lane)
        self.shards[key].add(partition[1])
        self.ends[partition] = position
        self._spans[key].add(position.first, position.last)

    def has(self, position: StreamPosition) -> bool:
        """Return True if the sequences of a record are there."""
        found = self._spans.get((position.gateway, position.stream))
        return found is not None and not without([(position.first, position.last)], found.result().spans)

    def last(self, key: StreamKey) -> int:
        """Return the highest sequence of a stream, 0 for none."""
        found = self._spans.get(key)
        return found.result().last if found is not None else 0

    def streams(self) -> list[tuple[str, str, str, list[Span]]]:
        """Return gateway, stream, lane and sequences of each stream."""
        return [(*key, self.lanes[key].value, self._spans[key].result().spans) for key in sorted(self._spans)]

    def positions(self, table: str, bounds: Mapping[Partition, tuple[int, int]]) -> dict[Partition, int]:
        """Return the next offset that a table lacks, of each partition, and none that Kafka has deleted.

        Retention in a mirror deletes what the table has from the former Kafka: the ledger knows, by the sequences.
        """
        found = self._readings[table]
        return {each: max(found[each].next if each in found else 0, first) for each, (first, _) in bounds.items()}


def _has(table: TableProgress, position: StreamPosition | None, partition: Partition) -> bool:
    if position is None:
        return False
    tail = table.tails.get((position.gateway, position.stream, partition[1]))
    return tail is not None and position.last <= tail.last
