"""Work of Spark's workers on a micro-batch: parse and stage, stage, derive. They write Parquet files, and reply with names."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline.events.identity import COMPARED_BY_ID, Dedup
from fogline_cloud.canonical_settings import CanonicalSettings
from fogline_cloud.flows.deployed.trial_report import TrialReport
from fogline_cloud.flows.tables.batch import File, MicroBatch
from fogline_cloud.flows.tables.files import FileWriter, TableFolder, read_rows
from fogline_cloud.flows.tables.schema import MEASURED, STORED, EventOutcome, conformed
from fogline_cloud.flows.worker.cross_gateway_dedup import COMPARED, Rules, with_verdicts
from fogline_cloud.flows.worker.derive import count_readings, derived_records, reading_rows
from fogline_cloud.flows.worker.parse import ParserNotes, Plan, parse
from fogline_cloud.flows.worker.parse_spans import MAX_TRACED, TracedRow, traced_rows
from fogline_cloud.flows.worker.publish import publish
from fogline_cloud.settings import Scalar, SharedSettings, Strategy

REPLY = "reply BINARY"
"""Spark schema of a reply: the result of a task, JSON."""


class StagedFiles(msgspec.Struct, frozen=True):
    """Files that one task wrote and no commit names yet: with rows of `events`, and of `readings` where the list says so."""

    files: list[File]  # to commit as they are
    readings: list[File] = []  # to commit after them: rows of `readings`
    replayed: list[File] = []  # to compare with the table first: a gateway may have sent them before
    shared: list[File] = []  # to compare with the table first: other gateways may have sent them too
    killers: list[str] = []  # parsers that ended their process
    trials: list[TrialReport] = []  # of deployed parsers


class Suspects(msgspec.Struct, frozen=True):
    """Staged files with rows that other gateways may have sent too, and the committed files to compare them with."""

    staged: list[str]  # paths of files
    committed: list[str]  # paths of files
    span: tuple[datetime, datetime]  # first and last `recordedtime` that a copy of a staged row may have


class Derived(msgspec.Struct, frozen=True):
    """Result of one task that derived records from committed rows.

    `files`: of table `readings`. `outcomes`, `readings`: counts. `traced`: rows with a trace, if the task asks for them.
    """

    files: list[File]
    outcomes: dict[str, int]
    readings: int
    traced: list[TracedRow] = []


class WorkerTask(msgspec.Struct, frozen=True, kw_only=True):
    """Input of every task. `kafka`: librdkafka's settings. `shared`: rules for events that several gateways receive.

    `tracing`: replies name the rows with a trace.
    """

    plan: Plan
    events: TableFolder
    readings: TableFolder
    kafka: dict[str, Scalar]
    shared: list[SharedSettings] = []
    canonical: CanonicalSettings = CanonicalSettings()
    tracing: bool = False


class RowWriter:
    """Writes rows of `events`, and their rows of `readings`. A context manager, which deletes the files after an error."""

    def __init__(self, task: WorkerTask) -> None:
        self._events = FileWriter(task.events, MEASURED["events"])
        self._readings = FileWriter(task.readings, MEASURED["readings"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in (self._events, self._readings):
            each.__exit__(kind, error, trace)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of `events`."""
        self._events.add(rows)
        for some in reading_rows(pa.Table.from_batches([rows])).to_batches():
            self._readings.add(some)

    def close(self) -> tuple[list[File], list[File]]:
        """Write the remaining rows. Returns the files of `events`, and those of `readings`."""
        return self._events.close(), self._readings.close()


def contested_folder(batch: MicroBatch) -> str:
    """Return the folder, within the table's, of rows that may be duplicates. Delta ignores names that begin with `_`."""
    return f"_contested/{batch.run}/"


def stage_records(task: WorkerTask, batch: MicroBatch, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse raw records and write rows of both tables. Rows that may be duplicates go to files of their own."""
    rules = Rules(task.shared)
    certain = RowWriter(task)
    replayed = FileWriter(task.events, MEASURED["events"], below=contested_folder(batch))
    shared = FileWriter(task.events, MEASURED["events"], below=contested_folder(batch))
    notes = ParserNotes()
    with certain, replayed, shared:
        for rows in parse(task.plan, batch, records, notes, keep_bodies=True):
            may_be_replayed, may_be_shared = contested(rows, rules)
            replayed.add(rows.filter(may_be_replayed))
            shared.add(rows.filter(may_be_shared))
            certain.add(rows.filter(pc.invert(pc.or_(may_be_replayed, may_be_shared))))
        files = *certain.close(), replayed.close(), shared.close()
        yield reply(StagedFiles(*files, sorted(notes.killers), notes.trials))


def contested(rows: pa.RecordBatch, rules: Rules) -> tuple[pa.Array, pa.Array]:
    """Return two masks of the rows that must be compared with the table. No row is in both.

    The first: a gateway could not prove the row unsent, or other gateways may have sent it too and its id is never used again.
    The second: other gateways may have sent it too, and a rule or the first reason applies; its id alone is not enough, because
    it comes again when the device's counter wraps.
    """
    known = pc.and_(rows.column("source").is_valid(), rows.column("id").is_valid())
    by_id = pc.fill_null(pc.is_in(rows.column("dedup"), pa.array(COMPARED_BY_ID)), False)
    replayed = pc.and_(pc.or_(rows.column("replayed"), by_id), known)
    shared = pc.fill_null(pc.and_(pc.equal(rows.column("dedup"), Dedup.SHARED.value), known), False)
    if not shared.true_count:
        return replayed, shared
    cells = zip(*(each.to_pylist() for each in (shared, rows.column("device"), rows.column("subject"))), strict=True)
    compared = pa.array(
        [may and rules.of(device, subject).strategy is not Strategy.NONE for may, device, subject in cells], pa.bool_()
    )
    return pc.and_(replayed, pc.invert(shared)), pc.or_(compared, pc.and_(replayed, shared))


def stage_rows(task: WorkerTask, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of `events` that Spark has compared with the table, and their readings."""
    with RowWriter(task) as writer:
        for each in rows:
            for some in conformed(pa.Table.from_batches([each]), STORED).to_batches():
                writer.add(some)
        yield reply(StagedFiles(*writer.close()))


def stage_shared(task: WorkerTask, suspects: Suspects) -> StagedFiles:
    """Compare rows that several gateways may have sent, and write them and their readings. One process does it."""
    rows = pa.concat_tables(conformed(read_rows(task.events, each), STORED) for each in suspects.staged)
    relevant = (
        (pc.field("dedup") == Dedup.SHARED.value)
        & (pc.field("recordedtime") >= suspects.span[0])
        & (pc.field("recordedtime") <= suspects.span[1])
        & ((pc.field("outcome") != EventOutcome.DUPLICATE.value) | (pc.field("reason") != "replayed"))
        & pc.field("id").isin(pc.unique(rows.column("id")))
    )
    compared = pa.schema([STORED.field(name) for name in COMPARED])
    committed = [conformed(read_rows(task.events, each, list(COMPARED), relevant), compared) for each in suspects.committed]
    table = pa.concat_tables([compared.empty_table(), *committed])
    with RowWriter(task) as writer:
        for some in with_verdicts(rows, table, Rules(task.shared)).to_batches():
            writer.add(some)
        return StagedFiles(*writer.close())


def reply(result: msgspec.Struct) -> pa.RecordBatch:
    """Return what a task yields to the driver."""
    return pa.RecordBatch.from_pydict({"reply": [msgspec.json.encode(result)]})


def derive(task: WorkerTask, batch: MicroBatch, paths: Iterable[str], *, write: bool) -> Iterator[bytes]:
    """Send the derived records of committed files of `events` to Kafka. Yields one `Derived`, JSON.

    `write`: write the rows of `readings` as well, because the process that parsed them was killed before it committed them.
    """
    outcomes: Counter[str] = Counter()
    total = 0
    traced: list[TracedRow] = []
    with FileWriter(task.readings, MEASURED["readings"]) as writer:
        for path in paths:
            rows = _of_batch(conformed(read_rows(task.events, path), STORED), batch)
            publish(task.kafka, derived_records(rows, task.plan.tenant, task.canonical))
            if write:
                for some in reading_rows(rows).to_batches():
                    writer.add(some)
            outcomes.update(rows.column("outcome").to_pylist())
            total += count_readings(rows)
            if task.tracing:
                traced += traced_rows(rows)
        files: list[File] = writer.close()
        yield msgspec.json.encode(Derived(files, outcomes, total, traced[:MAX_TRACED]))


def _of_batch(rows: pa.Table, batch: MicroBatch) -> pa.Table:
    """Return the rows of one batch: a compacted file holds rows of many."""
    same = pc.equal(rows.column("batch"), batch.number)
    for name, value in (("flow", batch.flow), ("run", batch.run)):
        same = pc.and_(same, pc.equal(rows.column(name), value))
    return rows.filter(same)
