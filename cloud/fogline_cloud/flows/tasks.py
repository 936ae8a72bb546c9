"""What Spark's workers do for a micro-batch: parse and store, store, derive. No Spark is imported here.

Rows go from Arrow to a Parquet file in the worker itself; the driver hears of files only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline.identity import Dedup
from fogline_cloud.flows.arrow import conformed
from fogline_cloud.flows.batch import Batch, Derived, File, Landed, Suspects
from fogline_cloud.flows.derive import messages, reading_rows
from fogline_cloud.flows.files import FileWriter, Folder, read_rows
from fogline_cloud.flows.parse import STORED, Plan, parse
from fogline_cloud.flows.publish import publish
from fogline_cloud.flows.schema import Outcome
from fogline_cloud.flows.shared import Rules
from fogline_cloud.flows.sightings import SIGHTED, decided
from fogline_cloud.settings import Scalar, SharedSettings, Strategy

SAID = "said BINARY"
"""Spark schema of what a task of `land` and `store` says: one `Landed`, JSON."""
MEASURED = {
    "events": ("run", "batch", "ingested", "recordedtime", "stream", "sequence"),
    "readings": ("run", "batch", "time", "device"),
}
"""Columns that files keep statistics of: what they are found by."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to know. `kafka`: librdkafka's settings. `shared`: what becomes of what several gateways heard."""

    plan: Plan
    batch: Batch
    events: Folder
    readings: Folder
    kafka: dict[str, Scalar]
    shared: list[SharedSettings] = []


def contested_in(batch: Batch) -> str:
    """Where, below the table's folder, rows lie that may be duplicates, until that is decided. Delta ignores it."""
    return f"_contested/{batch.run}/"


def land(work: Work, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parse raw records and write rows of `events`: those that stand, and apart from them those that may be duplicates."""
    rules = Rules(work.shared)
    events = FileWriter(work.events, MEASURED["events"])
    replayed = FileWriter(work.events, MEASURED["events"], below=contested_in(work.batch))
    shared = FileWriter(work.events, MEASURED["events"], below=contested_in(work.batch))
    with events, replayed, shared:
        for rows in parse(work.plan, work.batch, records):
            may_be_replayed, may_be_shared = contested(rows, rules)
            replayed.add(rows.filter(may_be_replayed))
            shared.add(rows.filter(may_be_shared))
            events.add(rows.filter(pc.invert(pc.or_(may_be_replayed, may_be_shared))))
        said = Landed(events.close(), replayed.close(), shared.close())
        yield _said(said)


def contested(rows: pa.RecordBatch, rules: Rules) -> tuple[pa.Array, pa.Array]:
    """Which rows must be held against the table before they count; no row is in both.

    The first: a gateway could not prove them unsent. The second: others may have told of them, and the rules ask for that
    (or one could not prove them unsent, which is another question where an id comes again).
    """
    known = pc.and_(rows.column("source").is_valid(), rows.column("id").is_valid())
    replayed = pc.and_(rows.column("replayed"), known)
    shared = pc.fill_null(pc.and_(pc.equal(rows.column("dedup"), Dedup.SHARED.value), known), False)
    if not shared.true_count:
        return replayed, shared
    asked = pa.array(
        [
            may and rules.of(device, subject).strategy is not Strategy.NONE
            for may, device, subject in zip(*(each.to_pylist() for each in (shared, *_named(rows))), strict=True)
        ],
        pa.bool_(),
    )
    return pc.and_(replayed, pc.invert(shared)), pc.or_(asked, pc.and_(replayed, shared))


def _named(rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    return rows.column("device"), rows.column("subject")


def store(work: Work, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows of `events` that Spark has decided about."""
    with FileWriter(work.events, MEASURED["events"]) as events:
        for each in rows:
            for some in conformed(pa.Table.from_batches([each]), STORED).to_batches():
                events.add(some)
        yield _said(Landed(events.close()))


def settle_shared(work: Work, suspects: Suspects) -> bytes:
    """Decide about what several gateways may have told of, and write it. Returns one `Landed`, JSON."""
    rows = pa.concat_tables(conformed(read_rows(work.events, each), STORED) for each in suspects.files)
    mine = (
        (pc.field("flow") == work.batch.flow)
        & (pc.field("dedup") == Dedup.SHARED.value)
        & (pc.field("recordedtime") >= suspects.span[0])
        & (pc.field("recordedtime") <= suspects.span[1])
        & ((pc.field("outcome") != Outcome.DUPLICATE.value) | (pc.field("reason") != "replayed"))
    )
    sighted = pa.schema([STORED.field(name) for name in SIGHTED])
    there = [conformed(read_rows(work.events, each, list(SIGHTED), mine), sighted) for each in suspects.there]
    with FileWriter(work.events, MEASURED["events"]) as events:
        for some in decided(rows, pa.concat_tables([sighted.empty_table(), *there]), Rules(work.shared)).to_batches():
            events.add(some)
        return msgspec.json.encode(Landed(events.close()))


def _said(landed: Landed) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"said": [msgspec.json.encode(landed)]})


def derive(work: Work, paths: Iterable[str]) -> Iterator[bytes]:
    """From committed files of `events`: records to Kafka, rows of `readings` to files. Yields one `Derived`, JSON."""
    counted: Counter[str] = Counter()
    total = 0
    with FileWriter(work.readings, MEASURED["readings"]) as writer:
        for path in paths:
            rows = _of_batch(conformed(read_rows(work.events, path), STORED), work.batch)
            readings = reading_rows(rows)
            publish(work.kafka, messages(rows, readings, work.plan.tenant))
            for some in readings.to_batches():
                writer.add(some)
            counted.update(rows.column("outcome").to_pylist())
            total += readings.num_rows
        files: list[File] = writer.close()
        yield msgspec.json.encode(Derived(files, counted, total))


def _of_batch(rows: pa.Table, batch: Batch) -> pa.Table:
    """One batch's rows: a file that was packed holds those of many."""
    mine = pc.equal(rows.column("batch"), batch.number)
    for name, value in (("flow", batch.flow), ("run", batch.run)):
        mine = pc.and_(mine, pc.equal(rows.column(name), value))
    return rows.filter(mine)
