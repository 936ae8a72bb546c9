"""The ledger reads the records that came after its marks, and finds what it would find in all records."""

import random
from dataclasses import asdict

import msgspec
import pyarrow as pa
import pytest

from fogline.events.event import Lane
from fogline.events.gap import Gap, GapReason, gap_event
from fogline.gateway.ledger import STATEMENT_CONTENT_TYPE, Counts, Statement, encode_statement
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.kafka.clients import TopicFacts
from fogline_cloud.kafka.committed_records import CommittedRecord
from fogline_cloud.kafka.records import known_position, record_of
from fogline_cloud.ledger import marked_records
from fogline_cloud.ledger.balance import judge
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.marked_records import MarkedRecords, RecordsRead
from fogline_cloud.ledger.marks import RecordMarks, decode_marks, encode_marks
from fogline_lab.events import NOW_NS, make_event

TOPIC = "fogline.telemetry.t"
OFFSETS = 8
STREAMS = ("00000000000000aa", "00000000000000bb")
TEXTS = ("tenant", "topic", "gateway", "stream", "lane", "outcome", "reason", "detail")


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr(marked_records, "OFFSETS", OFFSETS)


class Line:
    """A partition as a broker would give it, empty ones beside it, and the rows of a flow that has read some of it."""

    def __init__(self, folder, monkeypatch) -> None:
        self.events = TableFolder(str(folder / "events"))
        self.file = folder / "events" / "_ledger" / "records" / "t.json.xz"
        self.records: list[CommittedRecord] = []
        self.low = self.flow_read = self.read_from = 0
        self.topic_id = "one"
        self.partitions = [(TOPIC, 0)]
        self.gaps: dict[tuple[str, int, int], str] = {}
        monkeypatch.setattr(marked_records, "read_committed", self.read)

    # --- what the ledger asks Kafka for

    def describe(self, names):
        return dict.fromkeys(names, TopicFacts(self.topic_id, 1))

    def bounds(self, partitions):
        return {each: (self.read_from, len(self.records)) if each == (TOPIC, 0) else (0, 0) for each in partitions}

    def read(self, _, starts):
        start = starts[TOPIC, 0]
        assert self.read_from <= start <= len(self.records), "Kafka would warn"
        return (each for each in self.records[start:] if each.value != b"control")

    # --- what happens

    def append(self, event) -> None:
        made = record_of(event)
        self.records.append(CommittedRecord(TOPIC, 0, len(self.records), b"", made.value, made.headers))

    def events_of(self, stream, *sequences) -> None:
        for n in sequences:
            self.append(make_event(n, stream=stream, id=f"{stream}.{n}"))

    def gap(self, stream, first, last) -> None:
        lost = Gap(GapReason.DROPPED, first, last, "the outbox was full")
        lane = Lane.TELEMETRY
        self.append(gap_event(lost, tenant="t", gateway="gw-1", stream=stream, lane=lane, now_ns=NOW_NS))

    def statement(self, stream, sequence, *, closed=False) -> None:
        counts = Counts(acknowledged=sequence - 1, stored=sequence - 1)
        word = encode_statement(Statement(stream, "telemetry", counts, closed))
        self.append(make_event(sequence, stream=stream, content_type=STATEMENT_CONTENT_TYPE, data=word))

    def control(self) -> None:
        self.records.append(CommittedRecord(TOPIC, 0, len(self.records), b"", b"control", []))

    # --- what the ledger says

    def reader(self) -> EvidenceReader:
        """A reader that has the rows of the flow."""
        reader = EvidenceReader("t", {(TOPIC, 0): self.low, **dict.fromkeys(self.partitions[1:], 0)})
        reader.accept(self.gaps)
        rows = [row_of(each) for each in self.records[: self.flow_read] if each.value != b"control"]
        if rows:
            table = pa.Table.from_pylist(rows)
            for name in TEXTS:
                index = table.schema.get_field_index(name)
                table = table.set_column(index, name, table.column(name).cast(pa.string()).dictionary_encode())
            reader.take_rows(table)
        return reader

    def verify(self, *, full=False, keep=True):
        reader, marked = self.reader(), MarkedRecords(self, "t", self.events)
        marked.read(reader, self.bounds(self.partitions), full=full, keep=keep)
        return reader.finish(), marked.summary

    def again(self) -> RecordsRead:
        """Verify, and compare with a ledger that reads all records of the ranges that marks stand for."""
        self.read_from = self.low // OFFSETS * OFFSETS
        checked, full = self.verify(full=True, keep=False)
        self.read_from = self.low
        found, summary = self.verify()
        assert full.wrong == []
        assert [asdict(each) for each in found] == [asdict(each) for each in checked]
        return summary


def row_of(record):
    place = known_position(record.headers, record.value)
    is_gap = place.first != place.last
    return {
        **dict.fromkeys(TEXTS),
        "topic": TOPIC,
        "partition": 0,
        "offset": record.offset,
        "tenant": "t",
        "gateway": place.gateway,
        "stream": place.stream,
        "lane": "telemetry",
        "first_sequence": place.first,
        "sequence": place.last,
        "outcome": "gap" if is_gap else "ok",
        "reason": "dropped" if is_gap else None,
        "detail": "the outbox was full" if is_gap else None,
    }


@pytest.fixture
def line(folder, monkeypatch) -> Line:
    made = Line(folder, monkeypatch)
    (folder / "events").mkdir()
    made.events_of(STREAMS[0], *range(1, 21))
    made.flow_read = 20
    found, summary = made.verify()
    assert ([judge(each) for each in found], summary.records, summary.known) == ([[]], 20, 0)
    return made


def test_only_records_after_the_marks_are_read(line):
    line.events_of(STREAMS[0], *range(21, 24))
    line.flow_read = 22
    summary = line.again()
    assert (summary.records, summary.known, summary.again) == (3, 20, [])
    summary = line.again()
    assert (summary.records, summary.known) == (1, 22), "the flow has not read the last one"


def test_records_that_the_flow_has_not_read_stay_pending(line):
    line.events_of(STREAMS[0], 21, 22)
    (evidence,), _ = line.verify()
    assert evidence.pending == [(21, 22)]
    line.flow_read = 22
    line.again()
    assert line.verify()[0][0].pending == []


def test_findings_of_earlier_runs_stay(line):
    line.events_of(STREAMS[0], 5, 23)
    line.flow_read = len(line.records)
    line.again()
    (evidence,), summary = line.verify()
    assert summary.records == 0
    found = {each.kind: each.spans for each in judge(evidence)}
    assert found == {"lost": [(21, 22)], "kafka-double": [(5, 5)], "table-double": [(5, 5)]}


def test_statements_and_gap_records_are_remembered(line):
    line.gap(STREAMS[0], 21, 25)
    line.statement(STREAMS[0], 26)
    line.statement(STREAMS[0], 27, closed=True)
    line.flow_read = len(line.records)
    line.again()
    line.control()
    line.again()
    (evidence,), summary = line.verify()
    assert (summary.records, evidence.statement_at, evidence.closed_at, evidence.gaps) == (0, 27, 27, [(21, 25)])


def test_marks_of_deleted_records_are_dropped(line):
    line.low = 17
    line.again()
    marks = decode_marks(line.file.read_bytes(), RecordMarks)
    assert [sorted(each.ranges) for each in marks.partitions] == [[2]]
    line.low = 20
    line.again()
    line.events_of(STREAMS[0], *range(21, 33))
    line.flow_read = 32
    line.again()
    line.low = 32
    assert line.again().known == 0
    (marks,) = decode_marks(line.file.read_bytes(), RecordMarks).partitions
    assert (marks.ranges, marks.next) == ({}, 32)


def topic_is_another(line):
    line.topic_id = "two"
    return "the topic was created again"


def log_is_shorter(line):
    del line.records[15:]
    line.flow_read = 15
    return "the log ends before the records that an earlier run read"


def rows_are_fewer(line):
    line.flow_read = 12
    return "the tables have fewer rows than at the earlier run"


@pytest.mark.parametrize("change", [topic_is_another, log_is_shorter, rows_are_fewer])
def test_marks_of_another_log_are_not_used(line, change):
    why = change(line)
    summary = line.again()
    assert (summary.again, summary.records) == ([f"{TOPIC}[0]: {why}"], len(line.records))
    assert line.again().again == []


def test_partitions_of_a_topic_with_one_reason_are_named_together(line):
    line.partitions += [(TOPIC, 1), (TOPIC, 2), (TOPIC, 4)]
    line.again()
    why = topic_is_another(line)
    assert line.again().again == [f"{TOPIC}[0..2, 4]: {why}"]


def test_an_accepted_gap_leads_to_a_full_read(line):
    line.gaps[TOPIC, 0, 9] = "deleted"
    assert line.again().again == ["a gap by retention was accepted: all records"]
    assert line.again().again == []


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda _: b""])
def test_damaged_marks_are_not_used(line, damage):
    line.file.write_bytes(damage(line.file.read_bytes()))
    (why,) = line.again().again
    assert why.startswith("the marks of Kafka cannot be used: they are damaged")


def test_wrong_marks_are_found_by_a_full_run(line):
    marks = decode_marks(line.file.read_bytes(), RecordMarks)
    (partition,) = marks.partitions
    forged = msgspec.structs.replace(partition, ranges={**partition.ranges, 0: partition.ranges[1]})
    line.file.write_bytes(encode_marks(msgspec.structs.replace(marks, partitions=[forged])))
    assert line.verify(full=True)[1].wrong == [f"{TOPIC}[0] offsets 0 to 7"]
    assert line.verify(full=True)[1].wrong == []


def test_marks_that_cannot_be_written_are_reported(line):
    line.file.unlink()
    line.file.parent.rmdir()
    line.file.parent.write_text("a file, not a folder")
    summary = line.verify()[1]
    assert (summary.records, summary.marks_bytes) == (20, 0)
    assert "marks cannot be written, so the next run reads everything" in summary.again[-1]


@pytest.mark.parametrize("seed", range(6))
def test_any_history_has_the_findings_of_a_full_read(folder, monkeypatch, seed):
    rng = random.Random(seed)
    line = Line(folder, monkeypatch)
    (folder / "events").mkdir()
    for _ in range(40):
        stream, n = rng.choice(STREAMS), rng.randrange(1, 60)
        match rng.randrange(8):
            case 0 | 1 | 2:
                line.events_of(stream, *range(n, n + rng.randrange(1, 12)))
            case 3:
                line.gap(stream, n, n + rng.randrange(1, 5))
            case 4:
                line.statement(stream, n, closed=rng.random() < 0.1)
            case 5:
                line.control()
            case 6:
                line.flow_read = rng.randint(line.flow_read, len(line.records))
            case 7:
                line.again()
                line.low = rng.randint(line.low, line.flow_read)
        if rng.random() < 0.5:
            line.again()
    line.again()
