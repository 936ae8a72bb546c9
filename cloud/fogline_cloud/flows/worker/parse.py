"""One pass of parsing over Arrow batches, from columns `KAFKA_RECORD` to those of table `events`, in a worker."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline.events.large_body import size_of
from fogline_cloud.flows.bodies.body_folder import BodyFolder
from fogline_cloud.flows.deployed.loaded_parsers import DeployedParsers, load_parsers
from fogline_cloud.flows.deployed.trial import TrialParsers
from fogline_cloud.flows.deployed.trial_report import TrialReport
from fogline_cloud.flows.parsers import MAX_READINGS
from fogline_cloud.flows.parsers.ble.keys import NO_KEYS, DeviceKeys
from fogline_cloud.flows.sandbox.parser_runner import EARLIEST_NS, LATEST_NS
from fogline_cloud.flows.sandbox.task_parsers import TaskParsers
from fogline_cloud.flows.sandbox.time_limit import TimeLimit
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import ARROW, DECIDED, READING, READINGS_TYPE, STORED, EventOutcome
from fogline_cloud.flows.worker.classify import EventRow, Raw, ReadRecord, read_record, row_of
from fogline_cloud.flows.worker.large_bodies import reading_bodies
from fogline_cloud.flows.worker.parser_choice import Choose, chooser
from fogline_cloud.settings import ParserRuleSettings

_WITHOUT_BODY = pa.array([EventOutcome.OK.value, EventOutcome.DUPLICATE.value, EventOutcome.CHUNK.value])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of parsing. `limit_s`: CPU time per event. `parsers` and `rules`: of `parser_choice.chooser`.

    `bodies`: the folder of large bodies. `memory_bytes`: memory that parsers may take. `in_child`: names of the parsers that
    run in a child process. `max_readings`: largest number of readings of one event. `deployed`: parsers beside the installed
    ones.
    """

    tenant: str
    limit_s: float
    parsers: dict[str, str]
    rules: tuple[ParserRuleSettings, ...] = ()
    keys: DeviceKeys = NO_KEYS
    memory_bytes: int = 1 << 30
    in_child: frozenset[str] = frozenset()
    max_readings: int = MAX_READINGS
    deployed: DeployedParsers = DeployedParsers()
    bodies: TableFolder | None = None


@dataclass
class ParserNotes:
    """What a task notes of its parsers. `killers`: the names of those that ended their process."""

    killers: set[str] = field(default_factory=set)
    trials: list[TrialReport] = field(default_factory=list)


def parse(
    plan: Plan,
    batch: MicroBatch,
    records: Iterable[pa.RecordBatch],
    notes: ParserNotes | None = None,
    *,
    keep_bodies: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task's records. `notes` gets what is to note of the parsers.

    `keep_bodies`: the records are as Kafka has them, and the chunks of large bodies among them are kept.

    Must run in the main thread of its process, because the time limit needs it.
    """
    loaded = load_parsers(plan.deployed, plan.keys, plan.memory_bytes)
    bodies = None if plan.bodies is None else BodyFolder(plan.bodies)
    with TimeLimit(plan.limit_s) as limit, reading_bodies(bodies):
        parsers = TrialParsers(TaskParsers(loaded.parsers, limit, plan.memory_bytes, plan.in_child, plan.max_readings), loaded)
        choose = chooser(plan.parsers, plan.rules, plan.deployed.set.content_types)
        for each in records:
            read = read_batch(each, plan.tenant, choose)
            if keep_bodies and bodies is not None:
                bodies.keep(row.event for row in read if isinstance(row, ReadRecord) and row.event.dataref is not None)
            yield decide_batch(each, plan, batch, read, parsers)
        if notes is not None:
            notes.killers |= parsers.killers
            notes.trials += parsers.reports()


def decide_batch(
    records: pa.RecordBatch,
    plan: Plan,
    batch: MicroBatch,
    read: Sequence[ReadRecord | EventRow],
    parsers: TrialParsers,
) -> pa.RecordBatch:
    """Return the rows of some records, which were `read`."""
    values, ingested = records.column("value"), within_calendar(records.column("ingested"))
    rows = list(_rows(read, parsers))
    decided = dict(zip((column.name for column in DECIDED), _columns(rows), strict=True))
    parsed_whole = pc.and_(pc.is_in(decided["outcome"], _WITHOUT_BODY), pc.is_null(decided["detail"]))
    body = pc.if_else(parsed_whole, pa.scalar(None, pa.binary()), values)
    columns = {
        **{name: records.column(name) for name in ("topic", "partition", "offset")},
        "ingested": ingested,
        **decided,
        "size_bytes": _sizes(values, rows),
        "data": body,
    }
    same = {"tenant": plan.tenant, "flow": batch.flow, "run": batch.run, "batch": batch.number}
    columns |= {name: pa.repeat(value, records.num_rows) for name, value in same.items()}
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in STORED], schema=STORED)


def _sizes(values: pa.Array, rows: Sequence[EventRow]) -> pa.Array:
    """Return the sizes of the bodies, also of those that rows refer to."""
    sizes = pc.fill_null(pc.binary_length(values), 0)
    referred = [0 if row.dataref is None else size_of(row.dataref) for row in rows]
    return pc.add(sizes.cast(pa.int64()), pa.array(referred, pa.int64())) if any(referred) else sizes


def read_batch(records: pa.RecordBatch, tenant: str, choose: Choose) -> list[ReadRecord | EventRow]:
    """Read records, and choose their parsers."""
    headers = _headers(records.column("headers"))
    ingested_us = within_calendar(records.column("ingested")).cast(pa.int64()).to_pylist()
    return [
        read_record(Raw(found, value or b"", ingested * 1000, partial(_position, records, row)), tenant, choose)
        for row, (found, value, ingested) in enumerate(
            zip(headers, _objects(records.column("value")), ingested_us, strict=True)
        )
    ]


def _rows(read: Sequence[ReadRecord | EventRow], parsers: TrialParsers) -> Iterator[EventRow]:
    to_parse = [(each.parser, each.event) for each in read if isinstance(each, ReadRecord) and each.result is None]
    results = iter(parsers.results(to_parse))
    for each in read:
        if isinstance(each, EventRow):
            yield each
        elif each.result is not None:
            yield row_of(each, each.result)
        else:
            yield row_of(each, *next(results))


def within_calendar(times: pa.Array) -> pa.Array:
    """Return times within the years 1 to 9999: a producer may set any, and readers of the tables cannot hold others."""
    since_us = pc.min_element_wise(times.cast(pa.int64()), LATEST_NS // 1000)
    return pc.max_element_wise(since_us, EARLIEST_NS // 1000).cast(times.type)


def _position(records: pa.RecordBatch, row: int) -> str:
    return "-".join(str(records.column(name)[row]) for name in ("topic", "partition", "offset"))


def _columns(rows: Sequence[EventRow]) -> Iterator[pa.Array]:
    columns = list(zip(*rows, strict=True)) or [()] * len(DECIDED)
    for column, cells in zip(DECIDED, columns, strict=True):
        yield _readings(cells) if column.type == READINGS_TYPE else pa.array(cells, ARROW[column.type])


def _readings(cells: Sequence[Sequence[tuple[object, ...]]]) -> pa.Array:
    offsets = [0]
    for cell in cells:
        offsets.append(offsets[-1] + len(cell))
    fields = list(zip(*chain.from_iterable(cells), strict=True)) or [()] * READING.num_fields
    flat = [pa.array(each, field.type) for each, field in zip(fields, READING, strict=True)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(flat, fields=list(READING)))


def _objects(array: pa.Array) -> list[bytes | None]:
    # numpy converts ten times as fast as a loop over the array.
    return list(array.to_numpy(zero_copy_only=False))


def _headers(array: pa.ListArray) -> list[dict[str, bytes]]:
    """Return each record's headers. The last header of a name counts; headers without a value are omitted."""
    offsets = array.offsets.to_pylist()
    keys, values = array.values.flatten()
    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    names = [distinct[index] for index in encoded.indices.to_pylist()]
    bodies = _objects(values)
    found = [dict(zip(names[begin:end], bodies[begin:end], strict=True)) for begin, end in pairwise(offsets)]
    if values.null_count:
        return [{name: body for name, body in each.items() if body is not None} for each in found]
    return found
