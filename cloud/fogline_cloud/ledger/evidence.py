"""Collects the evidence about each stream, from records in Kafka and rows of `events`. Pure.

The rows come first. Memory grows with the number of streams, gap records and holes, not of records and rows.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from fogline.errors import Poison
from fogline.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline_cloud.committed_records import CommittedRecord
from fogline_cloud.flows.schema import RETENTION, EventOutcome
from fogline_cloud.kafka import Partition
from fogline_cloud.ledger.arrow_rows import equals, runs, streams_of
from fogline_cloud.ledger.balance import Loss, StreamEvidence
from fogline_cloud.ledger.marks import EvidenceMarks, StreamMarks
from fogline_cloud.ledger.ranges import SequenceSet, SpanCollector, size, without
from fogline_cloud.records import StreamPosition, is_replayed, known_position
from fogline_cloud.shard.admission import StreamKey

KafkaPosition = tuple[str, int, int]
"""Topic, partition and offset."""
_NONE = 1 << 62  # instead of a sequence: there is none


@dataclass(slots=True)
class _Collected:
    """The sequences of one stream."""

    kafka: SpanCollector = field(default_factory=SpanCollector)
    table: SpanCollector = field(default_factory=SpanCollector)
    waiting: SpanCollector = field(default_factory=SpanCollector)  # in Kafka, and not read by the flow yet
    arrivals: SpanCollector = field(default_factory=SpanCollector)
    gaps: SpanCollector = field(default_factory=SpanCollector)
    deleted: int = 0  # the last sequence in the table that Kafka has deleted
    maybe_deleted: int = 0  # the last sequence that it may have deleted, if its first one in Kafka does not tell
    places: dict[Partition, tuple[int, int, int]] = field(default_factory=dict)  # lowest, highest offset; highest sequence
    losses: dict[int, Loss] = field(default_factory=dict)
    around: dict[KafkaPosition, tuple[int, int]] = field(default_factory=dict)  # by accepted gap: last before, first after


_ByStream = Mapping[StreamKey, _Collected]


class EvidenceReader:
    """Collects the evidence about the streams of a tenant. `low`: the first offset that Kafka still has of each partition."""

    def __init__(self, tenant: str, low: Mapping[Partition, int]) -> None:
        self.streams: dict[StreamKey, StreamEvidence] = {}
        self._ours: set[StreamKey] = set()
        self._of_others: set[StreamKey] = set()
        self._tenant = tenant
        self.low = low
        self._read: dict[Partition, int] = {}  # the last offset that the flow has read
        self._collected: dict[StreamKey, _Collected] = defaultdict(_Collected)
        self._accepted: dict[KafkaPosition, str] = {}  # detail of each gap by retention, by its last offset

    def of_day(self) -> "EvidenceReader":
        """Return a reader for the rows of one day, which knows the same gaps by retention."""
        reader = EvidenceReader(self._tenant, {})
        reader.accept(self._accepted)
        return reader

    def stream(self, gateway: str, stream: str, lane: str) -> StreamEvidence:
        """Return the evidence about a stream."""
        return self.streams.setdefault((gateway, stream), StreamEvidence(gateway, stream, lane))

    def accept(self, gaps: Mapping[KafkaPosition, str]) -> None:
        """Take note of gaps by retention, before any row is added."""
        self._accepted.update(gaps)

    def retention_gaps(self, rows: pa.Table) -> dict[KafkaPosition, str]:
        """Return the gaps by retention among rows of `events`, by topic, partition and last offset."""
        found = rows.filter(pc.and_(self._is_ours(rows), is_retention_gap(rows))).to_pylist()
        return {(row["topic"], row["partition"], row["offset"]): row["detail"] or "" for row in found}

    def take_record(self, record: CommittedRecord) -> None:
        """Add a record."""
        position = known_position(record.headers, record.value)
        if position is None:
            return
        collected = self._collected[position.gateway, position.stream]
        evidence = self.stream(position.gateway, position.stream, position.lane.value)
        collected.kafka.add(position.first, position.last)
        for topic, partition, end in self._accepted:
            if (topic, partition) == (record.topic, record.partition):
                before, after = (position.last, _NONE) if record.offset <= end else (0, position.first)
                _widen(collected, (topic, partition, end), before, after)
        if record.offset > self._read.get((record.topic, record.partition), -1):
            collected.waiting.add(position.first, position.last)
        headers = {name: value for name, value in dict(record.headers).items() if value is not None}
        content_type = headers.get("content-type", b"").decode("utf-8", "replace")
        if content_type == STATEMENT_CONTENT_TYPE:
            _take_statement(evidence, position, record.value)
        elif content_type == GAP_CONTENT_TYPE:
            collected.gaps.add(position.first, position.last)
            _take_loss(collected.losses, position, record.value)
        elif not is_replayed(headers):
            collected.arrivals.add(position.last, position.last)

    def ours(self, rows: pa.Table) -> pa.Table:
        """Return those rows of `events` that belong to a stream of this tenant."""
        return rows.filter(pc.and_(self._is_ours(rows), rows.column("stream").is_valid()))

    def _is_ours(self, rows: pa.Table) -> pa.Array:
        return equals(rows.column("tenant"), self._tenant).fill_null(True)

    def take_rows(self, rows: pa.Table) -> pa.Table:
        """Add rows of `events`. Returns `ours` of them."""
        is_ours = self._is_ours(rows)
        others = rows.filter(pc.and_(pc.invert(is_ours), rows.column("stream").is_valid()))
        if others.num_rows:
            self._of_others.update(streams_of(others)[1])
        for partition, offset in _greatest_offsets(rows.filter(is_ours)):
            self._read[partition] = max(self._read.get(partition, -1), offset)
        ours = self.ours(rows)
        numbers, keys = streams_of(ours)
        self._ours.update(keys)
        first, last = (ours.column(name).combine_chunks() for name in ("first_sequence", "sequence"))
        for run in runs(numbers, first, last):
            key = keys[run.stream]
            if key not in self.streams:
                self.stream(*key, ours.column("lane")[run.row].as_py())
            self._collected[key].table.add(run.first, run.last)
        for row in ours.filter(equals(ours.column("outcome"), EventOutcome.GAP.value)).to_pylist():
            loss = Loss(row["first_sequence"], row["sequence"], row["reason"] or "", row["detail"] or "")
            self._collected[row["gateway"], row["stream"]].losses.setdefault(row["sequence"], loss)
        self.take_deleted(ours, self.low)
        _take_places(self._collected, numbers, keys, ours)
        for gap in self._accepted:
            _take_neighbours(self._collected, ours, gap)
        return ours

    def take_marks(self, marks: EvidenceMarks) -> None:
        """Add the rows that these marks stand for."""
        self._of_others.update(marks.others)
        for topic, partition, offset in marks.read:
            self._read[topic, partition] = max(self._read.get((topic, partition), -1), offset)
        for each in marks.streams:
            key = (each.gateway, each.stream)
            self._ours.add(key)
            self.stream(*key, each.lane)
            collected = self._collected[key]
            collected.table.include(SequenceSet(each.spans, each.twice))
            for first, last, reason, detail in each.losses:
                collected.losses.setdefault(last, Loss(first, last, reason, detail))
            for topic, partition, *place in each.places:
                _take_place(collected, (topic, partition), *place)
            for topic, partition, end, before, after in each.around:
                if (topic, partition, end) in self._accepted:
                    _widen(collected, (topic, partition, end), before, after)

    def marks(self) -> EvidenceMarks:
        """Return marks that stand for the rows so far. No record may have been added."""
        streams = []
        for key in sorted(self._ours):
            collected = self._collected[key]
            table = collected.table.result()
            losses = [(each.first, each.last, each.reason, each.detail) for _, each in sorted(collected.losses.items())]
            places = [(*partition, *place) for partition, place in sorted(collected.places.items())]
            around = [(*gap, *ends) for gap, ends in sorted(collected.around.items())]
            lane = self.streams[key].lane
            streams.append(StreamMarks(*key, lane, table.spans, table.duplicates, losses, places, around))
        read = [(*partition, offset) for partition, offset in sorted(self._read.items())]
        return EvidenceMarks(streams, read, sorted(self._of_others))

    @property
    def of_others(self) -> set[StreamKey]:
        """Streams of other tenants in the same tables."""
        return self._of_others - self._ours

    def take_deleted(self, ours: pa.Table, low: Mapping[Partition, int]) -> None:
        """Note the rows whose records Kafka has deleted: those below `low`."""
        if not low:
            return
        deleted = ours.filter(_is_below(ours, low))
        if not deleted.num_rows:
            return
        numbers, keys = streams_of(deleted)
        last = pa.table([numbers, deleted.column("sequence")], names=["stream", "sequence"]).group_by("stream")
        for row in last.aggregate([("sequence", "max")]).to_pylist():
            collected = self._collected[keys[row["stream"]]]
            collected.deleted = max(collected.deleted, row["sequence_max"])

    def take_deleted_marks(self, marks: EvidenceMarks, low: Mapping[Partition, int]) -> None:
        """Note the rows of a day whose records Kafka has deleted. Where it deleted only some, its records tell which."""
        for each in marks.streams:
            collected = self._collected[each.gateway, each.stream]
            for topic, partition, lowest, highest, last in each.places:
                first = low.get((topic, partition), 0)
                if highest < first:
                    collected.deleted = max(collected.deleted, last)
                elif lowest < first:
                    collected.maybe_deleted = max(collected.maybe_deleted, last)

    def finish(self) -> list[StreamEvidence]:
        """Return the evidence about each stream."""
        for key, evidence in self.streams.items():
            collected = self._collected[key]
            evidence.kafka, evidence.table = collected.kafka.result(), collected.table.result()
            evidence.gaps = collected.gaps.result().spans
            unread = _unread(collected, self._accepted)
            evidence.deleted = [(loss.first, loss.last) for loss in unread]
            evidence.losses = sorted([*collected.losses.values(), *unread], key=lambda loss: loss.first)
            evidence.pending = without(collected.waiting.result().spans, evidence.table.spans)
            after = [(evidence.statement_at, evidence.kafka.last)]
            evidence.arrivals_before = size(without(collected.arrivals.result().spans, after))
            evidence.gaps_before = size(span for span in evidence.gaps if span[1] < evidence.statement_at)
            first = evidence.kafka.spans[0][0] if evidence.kafka.spans else _NONE
            evidence.kafka_from = max(collected.deleted, min(collected.maybe_deleted, first - 1)) + 1
        return [self.streams[key] for key in sorted(self.streams)]


def _take_places(into: _ByStream, numbers: pa.Array, keys: list[StreamKey], ours: pa.Table) -> None:
    """Note between which offsets the rows of each stream are."""
    columns = [numbers, *(ours.column(name) for name in ("topic", "partition", "offset", "sequence"))]
    rows = pa.table(columns, names=["stream", "topic", "partition", "offset", "sequence"])
    found = rows.group_by(["stream", "topic", "partition"]).aggregate(
        [("offset", "min"), ("offset", "max"), ("sequence", "max")]
    )
    for row in found.to_pylist():
        place = (row["offset_min"], row["offset_max"], row["sequence_max"])
        _take_place(into[keys[row["stream"]]], (row["topic"], row["partition"]), *place)


def _take_neighbours(into: _ByStream, ours: pa.Table, gap: KafkaPosition) -> None:
    """Note the last sequence before a gap by retention and the first one after it, of each stream."""
    topic, partition, end = gap
    here = ours.filter(pc.and_(equals(ours.column("topic"), topic), pc.equal(ours.column("partition"), partition)))
    if not here.num_rows:
        return
    numbers, keys = streams_of(here)
    is_before = pc.less_equal(here.column("offset"), end)
    before = pc.if_else(is_before, here.column("sequence"), 0)
    after = pc.if_else(is_before, _NONE, here.column("first_sequence"))
    ends = pa.table([numbers, before, after], names=["stream", "before", "after"]).group_by("stream")
    for row in ends.aggregate([("before", "max"), ("after", "min")]).to_pylist():
        _widen(into[keys[row["stream"]]], gap, row["before_max"], row["after_min"])


def _unread(collected: _Collected, accepted: Mapping[KafkaPosition, str]) -> list[Loss]:
    """Return the sequences that retention deleted before the flow had read them: holes where a gap is."""
    known = sorted([*collected.kafka.result().spans, *collected.table.result().spans])
    return [
        Loss(first, last, RETENTION, accepted[gap])
        for gap, (before, after) in collected.around.items()
        if before + 1 < after < _NONE
        for first, last in without([(before + 1, after - 1)], known)
    ]


def is_retention_gap(rows: pa.Table) -> pa.Array:
    """Return a mask of the rows of `events` that stand for offsets, not for sequences."""
    found = pc.and_(equals(rows.column("outcome"), EventOutcome.GAP.value), pc.equal(rows.column("reason"), RETENTION))
    return pc.and_(pc.fill_null(found, False), pc.is_null(rows.column("stream")))


def _widen(collected: _Collected, gap: KafkaPosition, before: int, after: int) -> None:
    known = collected.around.get(gap, (0, _NONE))
    collected.around[gap] = (max(known[0], before), min(known[1], after))


def _take_place(collected: _Collected, partition: Partition, lowest: int, highest: int, last: int) -> None:
    known = collected.places.get(partition, (lowest, highest, last))
    collected.places[partition] = (min(known[0], lowest), max(known[1], highest), max(known[2], last))


def _take_loss(losses: dict[int, Loss], position: StreamPosition, value: bytes) -> None:
    try:
        gap = decode_gap(value)
    except Poison:
        return
    lost = f" ({gap.lost.first}..{gap.lost.last} of stream {gap.lost.stream})" if gap.lost and gap.lost.first else ""
    losses[position.last] = Loss(position.first, position.last, gap.reason.value, gap.detail + lost)


def _take_statement(evidence: StreamEvidence, position: StreamPosition, value: bytes) -> None:
    try:
        statement = decode_statement(value)
    except Poison:
        return
    if statement.stream == position.stream and position.last > evidence.statement_at:
        evidence.statement, evidence.statement_at = statement.counts, position.last
        evidence.closed_at = position.last if statement.closed else evidence.closed_at


def _greatest_offsets(rows: pa.Table) -> list[tuple[Partition, int]]:
    greatest = rows.select(["topic", "partition", "offset"]).group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return [((row["topic"], row["partition"]), row["offset_max"]) for row in greatest.to_pylist()]


def _is_below(rows: pa.Table, low: Mapping[Partition, int]) -> pa.Array:
    """Return a mask of the rows below the lowest offset of their partition."""
    topics = rows.column("topic").combine_chunks()
    names = topics.dictionary.to_pylist()
    places = pc.add(
        pc.multiply(topics.indices.cast(pa.int64()), 1 << 32), rows.column("partition").combine_chunks()
    ).dictionary_encode()
    lowest = [low.get((names[place >> 32], place & 0xFFFF_FFFF), 0) for place in places.dictionary.to_pylist()]
    return pc.less(rows.column("offset").combine_chunks(), pa.array(lowest, pa.int64()).take(places.indices))
