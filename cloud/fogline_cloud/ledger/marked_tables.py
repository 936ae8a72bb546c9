"""Reads the tables into the evidence: of each day all rows, or those that came after its marks."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec
import pyarrow as pa

from fogline_cloud.flows.tables.files import tables_in
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.ledger import identities
from fogline_cloud.ledger.arrow_rows import KafkaPosition, retention_gaps, stream_rows
from fogline_cloud.ledger.day_changes import DayPlan, plan_day
from fogline_cloud.ledger.evidence import EvidenceReader
from fogline_cloud.ledger.identities import IdentityCheck, events_with
from fogline_cloud.ledger.marks import FORMAT, DayMarks, LedgerMarks
from fogline_cloud.ledger.marks_file import MarksFile, MarksUse
from fogline_cloud.ledger.readings import RANGE_BITS, ReadingSums, SequenceRange
from fogline_cloud.ledger.table_reader import TableReader
from fogline_cloud.settings import CloudSettings
from fogline_cloud.store.options import storage_of

_EVENTS = (
    *("tenant", "topic", "partition", "offset", "gateway", "stream", "lane"),
    *("first_sequence", "sequence", "outcome", "reason", "detail", "values"),
)
_GAPS = ("tenant", "topic", "partition", "offset", "stream", "outcome", "reason", "detail")
_READINGS = ("gateway", "stream", "sequence", "ordinal")


@dataclass(slots=True)
class TablesRead(MarksUse):
    """How the tables were read. `full`: without marks. `rows`: number of rows that were read. `wrong`: days."""

    full: bool = True
    rows: int = 0


class MarkedTables:
    """Table `events` and table `readings` of a tenant, and the marks beside `events`."""

    def __init__(self, settings: CloudSettings) -> None:
        tables = tables_in(settings.flow.tables, storage_of(settings))
        self.events = TableReader(tables.events, _EVENTS)
        self.readings = TableReader(tables.readings, _READINGS)
        self.summary = TablesRead()
        self._readers = {"events": self.events, "readings": self.readings}
        self.tenant = settings.tenant
        self._file = MarksFile(tables.events, settings.tenant, LedgerMarks)
        self._days: dict[str, DayMarks] = {}  # all rows of each day
        self._kept: dict[str, DayMarks] = {}  # the part of them that was not read
        self._read: dict[str, Sequence[str]] = {}  # files of `events` that were read, by day

    def read(self, reader: EvidenceReader, sums: ReadingSums, *, full: bool) -> None:
        """Add the rows of both tables to the evidence, and write marks. `full`: read all rows, and check the marks."""
        begun = time.monotonic()
        known = self._known()
        gaps: dict[str, dict[KafkaPosition, str]] = {}
        plans: dict[str, dict[str, DayPlan]] = {}
        if known is not None:
            plans = self._plans(known)
            gaps = self._gaps(plans, known)
            if {gap for of_day in gaps.values() for gap in of_day} - _gaps_of(known):
                self.summary.again.append("a gap by retention was accepted: all days")
                known = None
        if known is not None:
            for of_day in gaps.values():
                reader.accept(of_day)
            self.summary.full = full
            self._days = {day: self._day(reader, day, plan, known.days.get(day), gaps[day]) for day, plan in plans.items()}
        if known is None or full:
            self._read_all(reader, checked=known is not None)
        self.summary.known = sum(sum(day.rows.values()) for day in self._kept.values())
        for marks in self._days.values():
            reader.take_marks(marks.evidence)
            sums.take_marks(marks.readings)
            for gateway, stream, sequence in marks.repeated:
                reader.streams[gateway, stream].repeated_ids.append((sequence, sequence))
        for marks in self._kept.values():
            reader.take_deleted_marks(marks.evidence, reader.low)
        self._write()
        self.summary.seconds = time.monotonic() - begun

    def _read_all(self, reader: EvidenceReader, *, checked: bool) -> None:
        """Read every day from its files. `checked`: the marks that are there stand for the same rows."""
        by_marks, self._days, self._kept, self._read = self._days, {}, {}, {}
        plans = {
            day: {name: DayPlan(sorted(table.days.get(day, ())), "all") for name, table in self._readers.items()}
            for day in sorted({*self.events.days, *self.readings.days})
        }
        gaps = self._gaps(plans, None)
        for of_day in gaps.values():
            reader.accept(of_day)
        self._days = {day: self._day(reader, day, plan, None, gaps[day]) for day, plan in plans.items()}
        if checked:
            self.summary.wrong = sorted(day for day in {*self._days, *by_marks} if self._days.get(day) != by_marks.get(day))

    def _plans(self, known: LedgerMarks) -> dict[str, dict[str, DayPlan]]:
        """Return what to read of each day. If a file of one table was replaced, both are read again."""
        plans = {}
        for day in sorted({*self.events.days, *self.readings.days, *known.days}):
            marks = known.days.get(day)
            found = {name: self._plan(name, day, marks, known) for name in self._readers}
            present = {name: table.days.get(day, {}) for name, table in self._readers.items()}
            if not any(present.values()):
                continue  # retention has deleted the day
            if marks is not None and (why := next((each.why for each in found.values() if each.why), "")):
                self.summary.again.append(f"{day or 'all rows'}: {why}")
                found = {name: DayPlan(sorted(present[name]), why) for name in found}
            plans[day] = found
        return plans

    def _plan(self, name: str, day: str, marks: DayMarks | None, known: LedgerMarks) -> DayPlan:
        table = self._readers[name]
        present = table.days.get(day, {})
        files = {} if marks is None else marks.files[name]
        commits = None if files.keys() <= present.keys() else table.commits(known.tables[name].version, day)
        plan = plan_day(files, present, commits)
        if plan.compacted and not table.has(plan.paths):
            return DayPlan(sorted(present), "files were compacted and deleted before they were read")
        return plan

    def _gaps(
        self, plans: Mapping[str, Mapping[str, DayPlan]], known: LedgerMarks | None
    ) -> dict[str, dict[KafkaPosition, str]]:
        """Return the gaps by retention of each day, also those that the marks know."""
        gaps: dict[str, dict[KafkaPosition, str]] = {}
        for day, plan in plans.items():
            marks = known.days.get(day) if known is not None and not plan["events"].why else None
            gaps[day] = {(topic, number, end): detail for topic, number, end, detail in marks.gaps} if marks else {}
            for rows in self.events.rows(plan["events"].paths, _GAPS):
                gaps[day] |= retention_gaps(rows, self.tenant)
        return gaps

    def _day(
        self,
        reader: EvidenceReader,
        day: str,
        plan: Mapping[str, DayPlan],
        marks: DayMarks | None,
        gaps: Mapping[KafkaPosition, str],
    ) -> DayMarks:
        """Read what is planned of a day. Returns its marks."""
        events, readings = plan["events"], plan["readings"]
        kept = None if events.why else marks
        of_day, sums = reader.part(), ReadingSums()
        rows = dict.fromkeys(self._readers, 0) if kept is None else dict(kept.rows)
        if kept is not None:
            of_day.take_marks(kept.evidence)
            sums.take_marks(kept.readings)
        for some in self.events.rows(events.paths):
            rows["events"] += len(some)
            self.summary.rows += len(some)
            ours = of_day.take_rows(some)
            reader.take_deleted(ours, reader.low)
            sums.expect(ours)
        for some in self.readings.rows(readings.paths):
            rows["readings"] += len(some)
            self.summary.rows += len(some)
            sums.find(with_stream(some))
        if any(plan[name].compacted and rows[name] != table.count(day) for name, table in self._readers.items()):
            why = "a compacted file has not the rows of its files"
            self.summary.again.append(f"{day or 'all rows'}: {why}")
            again = {name: DayPlan(sorted(table.days.get(day, ())), why) for name, table in self._readers.items()}
            return self._day(reader, day, again, None, self._gaps({day: again}, None)[day])
        self._read[day] = events.paths
        if kept is not None:
            self._kept[day] = kept
        files = {name: dict(table.days.get(day, {})) for name, table in self._readers.items()}
        if kept is not None and not events.paths and not readings.paths:
            return msgspec.structs.replace(kept, files=files)
        found = sorted((*gap, detail) for gap, detail in gaps.items())
        return DayMarks(files, rows, found, of_day.marks(), sums.marks(), self._repeated(day))

    def _repeated(self, day: str) -> list[tuple[str, str, int]]:
        """Return the events of a day that have the identity of another one. It reads all files of the day."""
        paths = sorted(self.events.days.get(day, ()))
        check = IdentityCheck(self.tenant)
        for rows in self.events.rows(paths, identities.COLUMNS):
            check.take(rows)
        repeated = check.repeated()
        if not len(repeated):
            return []
        every = (events_with(rows, self.tenant, repeated) for rows in self.events.rows(paths, identities.COLUMNS))
        return sorted((each.gateway, each.stream, each.sequence) for each in chain.from_iterable(every))

    def take_deleted(self, reader: EvidenceReader, low: Mapping[Partition, int]) -> None:
        """Note again which rows' records Kafka has deleted."""
        for paths in self._read.values():
            for rows in self.events.rows(paths):
                self.summary.rows += len(rows)
                reader.take_deleted(stream_rows(rows, self.tenant), low)
        for marks in self._kept.values():
            reader.take_deleted_marks(marks.evidence, low)

    def rows_in(self, table: TableReader, ranges: Sequence[SequenceRange]) -> Iterator[pa.Table]:
        """Yield the rows of a table on the days that have events or unequal readings in these ranges."""
        wanted = set(ranges)
        for day, marks in self._days.items():
            if _has_any(marks, wanted):
                for rows in table.rows(sorted(table.days.get(day, ()))):
                    self.summary.rows += len(rows)
                    yield rows

    def _known(self) -> LedgerMarks | None:
        """Return the marks if they can be trusted."""
        if self.events.mark is None:
            return None
        try:
            if (marks := self._file.read(self.tenant)) is None:
                return None
            if why := self._distrust(marks):
                raise ValueError(why)  # noqa: TRY301 - one place reports it
        except ValueError as error:
            self.summary.again.append(f"the marks cannot be used: {error}: all days")
            return None
        return marks

    def _distrust(self, marks: LedgerMarks) -> str:
        """Return why the marks do not belong to these tables, or an empty string."""
        for name, table in self._readers.items():
            then, now = marks.tables.get(name), table.mark
            if then is None or now is None:
                if then is not now:
                    return f"table {name} was created or deleted"
            elif then.id != now.id:
                return f"table {name} is another one now"
            elif then.types != now.types:
                return f"columns of table {name} have changed"
        return ""

    def _write(self) -> None:
        tables = {name: mark for name, table in self._readers.items() if (mark := table.mark) is not None}
        if "events" not in tables:
            return
        if why := self._file.write(LedgerMarks(FORMAT, self.tenant, tables, self._days)):
            self.summary.again.append(why)
        self.summary.marks_bytes = self._file.size


def with_stream(rows: pa.Table) -> pa.Table:
    """Return the rows of `readings` that belong to a stream."""
    return rows.filter(rows.column("stream").is_valid())


def _gaps_of(marks: LedgerMarks) -> set[KafkaPosition]:
    return {(topic, partition, end) for day in marks.days.values() for topic, partition, end, _ in day.gaps}


def _has_any(marks: DayMarks, wanted: set[SequenceRange]) -> bool:
    if any(((gateway, stream), part) in wanted for gateway, stream, part, _ in marks.readings.sums):
        return True
    spans = {(each.gateway, each.stream): each.spans for each in marks.evidence.streams}
    return any(first >> RANGE_BITS <= part <= last >> RANGE_BITS for key, part in wanted for first, last in spans.get(key, ()))
