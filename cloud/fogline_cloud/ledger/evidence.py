"""Collects the evidence about each stream, from records in Kafka and rows of `events`. Pure.

The rows come first. Memory grows with the number of streams, gap records and holes, not of records and rows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from fogline.errors import Poison
from fogline.events.event import TimeQuality
from fogline.events.gap import GAP_CONTENT_TYPE, decode_gap
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, decode_statement
from fogline_cloud.flows.tables.schema import RETENTION, EventOutcome
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import COPIED, StreamPosition, is_replayed, known_position
from fogline_cloud.ledger.arrow_rows import KafkaPosition, equals, is_of_tenant, runs, stream_rows, streams_of
from fogline_cloud.ledger.balance import Loss, StreamEvidence
from fogline_cloud.ledger.marks import EvidenceMarks, StreamMarks, StreamRecords
from fogline_cloud.ledger.ranges import SequenceSet, SpanCollector, size, without
from fogline_cloud.shard.admission import StreamKey

_NONE = 1 << 62  # instead of a sequence or a time: there is none
_MAX_DIGITS = 16  # of a time in milliseconds


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

    def widen(self, gap: KafkaPosition, before: int, after: int) -> None:
        """Note a sequence before an accepted gap, and one after it."""
        known = self.around.get(gap, (0, _NONE))
        self.around[gap] = (max(known[0], before), min(known[1], after))

    def take_around(self, accepted: Collection[KafkaPosition], around: Iterable[tuple[str, int, int, int, int]]) -> None:
        """Note what marks say about the sequences around gaps, as far as these are accepted."""
        for topic, partition, end, before, after in around:
            if (topic, partition, end) in accepted:
                self.widen((topic, partition, end), before, after)

    def take_place(self, partition: Partition, lowest: int, highest: int, last: int) -> None:
        """Note between which offsets rows are, and their highest sequence."""
        known = self.places.get(partition, (lowest, highest, last))
        self.places[partition] = (min(known[0], lowest), max(known[1], highest), max(known[2], last))

    def marked_losses(self) -> list[tuple[int, int, str, str]]:
        """Return the losses for marks."""
        return [(each.first, each.last, each.reason, each.detail) for _, each in sorted(self.losses.items())]

    def marked_around(self) -> list[tuple[str, int, int, int, int]]:
        """Return the sequences around accepted gaps for marks."""
        return [(*gap, *ends) for gap, ends in sorted(self.around.items())]


_ByStream = Mapping[StreamKey, _Collected]


class EvidenceReader:
    """Collects the evidence about the streams of a tenant. `low`: the first offset that Kafka still has of each partition.

    `accepted`: the gaps by retention, with the detail of each. `positions`: where the flow goes on, if raw topics were created
    again: offsets of rows may be those of former topics, and which events the new ones ever had before the first record of a
    stream, nobody knows.
    """

    def __init__(self, tenant: str, low: Mapping[Partition, int], positions: Mapping[Partition, int] | None = None) -> None:
        self.streams: dict[StreamKey, StreamEvidence] = {}
        self._ours: set[StreamKey] = set()
        self._of_others: set[StreamKey] = set()
        self._tenant = tenant
        self.low = low
        self._positions = positions or {}
        self._read = {partition: following - 1 for partition, following in self._positions.items()}  # last offset that was read
        self._collected: dict[StreamKey, _Collected] = defaultdict(_Collected)
        self.accepted: dict[KafkaPosition, str] = {}  # by the last offset of each gap

    def part(self) -> "EvidenceReader":
        """Return a reader for some of the rows or records, which knows the same gaps by retention."""
        reader = EvidenceReader(self._tenant, {})
        reader.accept(self.accepted)
        return reader

    def stream(self, gateway: str, stream: str, lane: str) -> StreamEvidence:
        """Return the evidence about a stream."""
        return self.streams.setdefault((gateway, stream), StreamEvidence(gateway, stream, lane))

    def accept(self, gaps: Mapping[KafkaPosition, str]) -> None:
        """Take note of gaps by retention, before any row is added."""
        self.accepted.update(gaps)

    def take_record(self, record: CommittedRecord) -> None:
        """Add a record."""
        position = known_position(record.headers, record.value)
        if position is None:
            return
        collected = self._collected[position.gateway, position.stream]
        evidence = self.stream(position.gateway, position.stream, position.lane.value)
        collected.kafka.add(position.first, position.last)
        for topic, partition, end in self.accepted:
            if (topic, partition) == (record.topic, record.partition):
                before, after = (position.last, _NONE) if record.offset <= end else (0, position.first)
                collected.widen((topic, partition, end), before, after)
        headers = {name: value for name, value in dict(record.headers).items() if value is not None}
        evidence.newest = max(evidence.newest, (position.last, _stored_ms(headers)))
        if record.offset > self._read.get((record.topic, record.partition), -1):
            collected.waiting.add(position.first, position.last)
            evidence.pending_ms = min(evidence.pending_ms or _NONE, _stored_ms(headers) or _NONE)
        content_type = headers.get("content-type", b"").decode("utf-8", "replace")
        if content_type == STATEMENT_CONTENT_TYPE:
            _take_statement(evidence, position, record.value, _stored_ms(headers))
        elif content_type == GAP_CONTENT_TYPE:
            collected.gaps.add(position.first, position.last)
            _take_loss(collected.losses, position, record.value)
        elif COPIED in headers or not is_replayed(headers):
            collected.arrivals.add(position.last, position.last)

    def take_rows(self, rows: pa.Table) -> pa.Table:
        """Add rows of `events`. Returns those of the tenant's streams."""
        is_ours = is_of_tenant(rows, self._tenant)
        others = rows.filter(pc.and_(pc.invert(is_ours), rows.column("stream").is_valid()))
        if others.num_rows:
            self._of_others.update(streams_of(others)[1])
        for partition, offset in _greatest_offsets(rows.filter(is_ours)):
            if partition not in self._positions:
                self._read[partition] = max(self._read.get(partition, -1), offset)
        ours = stream_rows(rows, self._tenant)
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
        for gap in self.accepted:
            _take_neighbours(self._collected, ours, gap)
        return ours

    def take_marks(self, marks: EvidenceMarks) -> None:
        """Add the rows that these marks stand for."""
        self._of_others.update(marks.others)
        for topic, partition, offset in marks.read:
            if (topic, partition) not in self._positions:
                self._read[topic, partition] = max(self._read.get((topic, partition), -1), offset)
        for each in marks.streams:
            key = (each.gateway, each.stream)
            self._ours.add(key)
            self.stream(*key, each.lane)
            collected = self._collected[key]
            collected.table.include(SequenceSet(each.spans, each.twice))
            for topic, partition, *place in each.places:
                collected.take_place((topic, partition), *place)
            for first, last, reason, detail in each.losses:
                collected.losses.setdefault(last, Loss(first, last, reason, detail))
            collected.take_around(self.accepted, each.around)

    def marks(self) -> EvidenceMarks:
        """Return marks that stand for the rows so far. No record may have been added."""
        streams = []
        for key in sorted(self._ours):
            collected = self._collected[key]
            table = collected.table.result()
            places = [(*partition, *place) for partition, place in sorted(collected.places.items())]
            lane = self.streams[key].lane
            streams.append(
                StreamMarks(
                    *key, lane, table.spans, table.duplicates, collected.marked_losses(), places, collected.marked_around()
                )
            )
        read = [(*partition, offset) for partition, offset in sorted(self._read.items())]
        return EvidenceMarks(streams, read, sorted(self._of_others))

    def take_record_marks(self, marks: Iterable[StreamRecords]) -> None:
        """Add the records that these marks stand for. The flow has read them."""
        for each in marks:
            evidence = self.stream(each.gateway, each.stream, each.lane)
            collected = self._collected[each.gateway, each.stream]
            collected.kafka.include(SequenceSet(each.spans, each.twice))
            collected.arrivals.include(SequenceSet(each.arrivals))
            collected.gaps.include(SequenceSet(each.gaps))
            for first, last, reason, detail in each.losses:
                collected.losses[last] = Loss(first, last, reason, detail)
            collected.take_around(self.accepted, each.around)
            evidence.newest = max(evidence.newest, each.newest)
            if each.statement_at > evidence.statement_at:
                evidence.statement, evidence.statement_at = each.statement, each.statement_at
                evidence.statement_ms, evidence.heads = each.statement_ms, each.heads
            evidence.closed_at = max(evidence.closed_at, each.closed_at)

    def record_marks(self) -> list[StreamRecords]:
        """Return marks that stand for the records so far. No row may have been added."""
        marks = []
        for key, evidence in sorted(self.streams.items()):
            collected = self._collected[key]
            kafka, arrivals, gaps = (each.result() for each in (collected.kafka, collected.arrivals, collected.gaps))
            marks.append(
                StreamRecords(
                    *key,
                    lane=evidence.lane,
                    spans=kafka.spans,
                    twice=kafka.duplicates,
                    arrivals=arrivals.spans,
                    gaps=gaps.spans,
                    losses=collected.marked_losses(),
                    around=collected.marked_around(),
                    statement=evidence.statement,
                    statement_at=evidence.statement_at,
                    closed_at=evidence.closed_at,
                    newest=evidence.newest,
                    statement_ms=evidence.statement_ms,
                    heads=evidence.heads,
                )
            )
        return marks

    def next_offset(self, partition: Partition) -> int:
        """Return the first offset of a partition that the flow has not read, as far as the rows tell."""
        return self._read.get(partition, -1) + 1

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
            unread = _unread(collected, self.accepted)
            evidence.deleted = [(loss.first, loss.last) for loss in unread]
            evidence.losses = sorted([*collected.losses.values(), *unread], key=lambda loss: loss.first)
            evidence.pending = without(collected.waiting.result().spans, evidence.table.spans)
            evidence.pending_ms = evidence.pending_ms if evidence.pending and evidence.pending_ms < _NONE else 0
            after = [(evidence.statement_at, evidence.kafka.last)]
            evidence.arrivals_before = size(without(collected.arrivals.result().spans, after))
            evidence.gaps_before = size(span for span in evidence.gaps if span[1] < evidence.statement_at)
            first = evidence.kafka.spans[0][0] if evidence.kafka.spans else _NONE
            if self._positions:
                collected.maybe_deleted = evidence.table.last
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
        into[keys[row["stream"]]].take_place((row["topic"], row["partition"]), *place)


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
        into[keys[row["stream"]]].widen(gap, row["before_max"], row["after_min"])


def _unread(collected: _Collected, accepted: Mapping[KafkaPosition, str]) -> list[Loss]:
    """Return the sequences that retention deleted before the flow had read them: holes where a gap is."""
    known = sorted([*collected.kafka.result().spans, *collected.table.result().spans])
    return [
        Loss(first, last, RETENTION, accepted[gap])
        for gap, (before, after) in collected.around.items()
        if before + 1 < after < _NONE
        for first, last in without([(before + 1, after - 1)], known)
    ]


def _take_loss(losses: dict[int, Loss], position: StreamPosition, value: bytes) -> None:
    try:
        gap = decode_gap(value)
    except Poison:
        return
    lost = f" ({gap.lost.first}..{gap.lost.last} of stream {gap.lost.stream})" if gap.lost and gap.lost.first else ""
    losses[position.last] = Loss(position.first, position.last, gap.reason.value, gap.detail + lost)


def _stored_ms(headers: Mapping[str, bytes]) -> int:
    """Return when the gateway stored an event, 0 if its clock was not known to be right."""
    if headers.get("ce_timequality") == TimeQuality.UNSYNCED.encode():
        return 0
    text = headers.get("creation-time", b"")
    return int(text) if text.isdigit() and len(text) < _MAX_DIGITS else 0


def _take_statement(evidence: StreamEvidence, position: StreamPosition, value: bytes, stored_ms: int) -> None:
    try:
        statement = decode_statement(value)
    except Poison:
        return
    if statement.stream == position.stream and position.last > evidence.statement_at:
        evidence.statement, evidence.statement_at = statement.counts, position.last
        evidence.statement_ms, evidence.heads = stored_ms, statement.heads
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
