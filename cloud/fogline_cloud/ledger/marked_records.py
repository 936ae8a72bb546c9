"""Reads Kafka into the evidence: all records, or those that came after its marks."""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.kafka.clients import KafkaClients, Partition, ids_of
from fogline_cloud.kafka.committed_records import CommittedRecord, read_committed
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marks import FORMAT, OFFSETS, PartitionMarks, RecordMarks, StreamRecords
from fogline_cloud.ledger.marks_file import MarksFile, MarksUse
from fogline_cloud.ledger.ranges import SpanCollector, shown


@dataclass(slots=True)
class RecordsRead(MarksUse):
    """How Kafka was read. `records`: number of records that were read. `wrong`: ranges of offsets."""

    records: int = 0


@dataclass(slots=True)
class _Range:
    """The range of offsets of a partition that is being read."""

    number: int
    reader: EvidenceReader
    count: int = 0


class MarkedRecords:
    """The records of a tenant's raw topics, and the marks beside table `events`.

    Marks stand for records that the flow has read: which of the others are pending, the next run decides.
    """

    def __init__(self, clients: KafkaClients, tenant: str, events: TableFolder) -> None:
        self.summary = RecordsRead()
        self._clients = clients
        self._tenant = tenant
        self._file = MarksFile(events, f"records/{tenant}", RecordMarks)
        self._open: dict[Partition, _Range] = {}
        self._marks: dict[Partition, PartitionMarks] = {}

    def read(self, reader: EvidenceReader, bounds: Mapping[Partition, tuple[int, int]], *, full: bool, keep: bool) -> None:
        """Add the records to the evidence, after the rows. `full`: read all, and check the marks. `keep`: write new ones.

        `bounds`: the first and the end offset of each partition. Raises `Unreachable`.
        """
        begun = time.monotonic()
        ids = ids_of(self._clients.describe({topic for topic, _ in bounds}))
        known = self._known(reader, ids, bounds)
        empty = {partition: PartitionMarks(*partition, bounds[partition][0], {}, {}) for partition in bounds}
        self._marks = empty if full else {**empty, **known}
        for each in self._marks.values():
            self.summary.known += sum(each.counts.values())
        for record in read_committed(self._clients, {partition: each.next for partition, each in self._marks.items()}):
            self.summary.records += 1
            self._take(reader, record)
        for partition in bounds:
            self._close(partition)
        for each in self._marks.values():
            for streams in each.ranges.values():
                reader.take_record_marks(streams)
        if full:
            self._check(known)
        if keep and (why := self._file.write(self._new(reader, ids))):
            self.summary.again.append(why)
        self.summary.marks_bytes = self._file.size
        self.summary.seconds = time.monotonic() - begun

    def _take(self, reader: EvidenceReader, record: CommittedRecord) -> None:
        partition, number = (record.topic, record.partition), record.offset // OFFSETS
        if record.offset >= reader.next_offset(partition):
            reader.take_record(record)
            return
        current = self._open.get(partition)
        if current is None or current.number != number:
            self._close(partition)
            current = self._open[partition] = _Range(number, reader.part())
            if (streams := self._marks[partition].ranges.get(number)) is not None:
                current.reader.take_record_marks(streams)
        current.reader.take_record(record)
        current.count += 1

    def _close(self, partition: Partition) -> None:
        if (ended := self._open.pop(partition, None)) is not None:
            marks = self._marks[partition]
            marks.ranges[ended.number] = ended.reader.record_marks()
            marks.counts[ended.number] = marks.counts.get(ended.number, 0) + ended.count

    def _known(
        self, reader: EvidenceReader, ids: Mapping[str, str], bounds: Mapping[Partition, tuple[int, int]]
    ) -> dict[Partition, PartitionMarks]:
        """Return the marks that can be trusted, without the ranges that Kafka has deleted."""
        try:
            if (marks := self._file.read(self._tenant)) is None:
                return {}
        except ValueError as error:
            self.summary.again.append(f"the marks of Kafka cannot be used: {error}: all records")
            return {}
        if marks.gaps != sorted(reader.accepted):
            self.summary.again.append("a gap by retention was accepted: all records")
            return {}
        known, distrusted = {}, defaultdict[tuple[str, str], SpanCollector](SpanCollector)
        for each in marks.partitions:
            partition = (each.topic, each.partition)
            if partition not in bounds:
                continue
            if why := _distrust(each, marks.topics.get(each.topic), ids.get(each.topic), bounds[partition], reader):
                distrusted[each.topic, why].add(each.partition, each.partition)
            else:
                known[partition] = _without_deleted(each, bounds[partition][0])
        for (topic, why), partitions in distrusted.items():
            self.summary.again.append(f"{topic}[{shown(partitions.result().spans)}]: {why}")
        return known

    def _check(self, known: Mapping[Partition, PartitionMarks]) -> None:
        """Compare the marks of whole ranges that Kafka still has with those of this run."""
        bounds = self._clients.bounds(known)  # now, because Kafka may have deleted records meanwhile
        for partition, former in known.items():
            found = self._marks[partition]
            for number in sorted({*former.ranges, *found.ranges}):
                begin, end = number * OFFSETS, (number + 1) * OFFSETS
                if begin < bounds[partition][0] or end > former.next:
                    continue
                if _by_stream(former, number) != _by_stream(found, number):
                    self.summary.wrong.append(f"{partition[0]}[{partition[1]}] offsets {begin} to {end - 1}")

    def _new(self, reader: EvidenceReader, ids: Mapping[str, str]) -> RecordMarks:
        """Return marks for the records that the flow has read."""
        partitions = [
            PartitionMarks(*partition, max(each.next, reader.next_offset(partition)), each.counts, each.ranges)
            for partition, each in sorted(self._marks.items())
        ]
        return RecordMarks(FORMAT, self._tenant, dict(ids), sorted(reader.accepted), partitions)


def _by_stream(marks: PartitionMarks, number: int) -> tuple[int, list[StreamRecords]]:
    return marks.counts.get(number, 0), marks.ranges.get(number, [])


def _distrust(marks: PartitionMarks, then: str | None, now: str | None, bounds: tuple[int, int], reader: EvidenceReader) -> str:
    """Return why the marks of a partition cannot be used, or an empty string."""
    if now is None:
        return "Kafka does not tell the topic's id"
    if then != now:
        return "the topic was created again"
    if marks.next > bounds[1]:
        return "the log ends before the records that an earlier run read"
    if marks.next > reader.next_offset((marks.topic, marks.partition)):
        return "the tables have fewer rows than at the earlier run"
    return ""


def _without_deleted(marks: PartitionMarks, low: int) -> PartitionMarks:
    """Return the marks from the range on that has the first record of Kafka."""
    ranges = {number: streams for number, streams in marks.ranges.items() if (number + 1) * OFFSETS > low}
    counts = {number: count for number, count in marks.counts.items() if number in ranges}
    return PartitionMarks(marks.topic, marks.partition, max(marks.next, low), counts, ranges)
