"""One pass of parsing over Arrow batches, as it runs in a Spark worker. No Spark is imported here.

In come the columns of `fogline_cloud.flows.source.RAW`, out go those of table `events`. Headers are taken apart column by
column, and what a row needs not decide about (place, size, body) never becomes a Python object twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.arrow import ARROW, READING, arrow_schema
from fogline_cloud.flows.asking import EARLIEST_NS, LATEST_NS, Asking
from fogline_cloud.flows.batch import Batch
from fogline_cloud.flows.limit import TimeLimit
from fogline_cloud.flows.outcome import Ask, Raw, Row, decide
from fogline_cloud.flows.parsers import installed
from fogline_cloud.flows.parsers.ble.keys import NO_KEYS, Keys, keyed
from fogline_cloud.flows.schema import DECIDED, EVENTS, READINGS_TYPE, Outcome, in_file

STORED = arrow_schema(in_file(EVENTS))
"""The columns of table `events` as its files hold them."""
_WITHOUT_BODY = pa.array([Outcome.OK.value, Outcome.DUPLICATE.value])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What parsing needs to know. `parsers`: content type to parser, over the default choice."""

    tenant: str
    limit_s: float
    parsers: dict[str, str]
    keys: Keys = NO_KEYS


def parse(plan: Plan, batch: Batch, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decide every record of one task. Runs in the main thread of its process (the time limit needs it)."""
    with TimeLimit(plan.limit_s) as limit:
        asking = Asking(keyed(installed(), plan.keys), limit)
        for each in records:
            yield decide_batch(each, plan, batch, asking.ask)


def decide_batch(records: pa.RecordBatch, plan: Plan, batch: Batch, ask: Ask) -> pa.RecordBatch:
    """The decisions about some records, beside the columns that pass through and those that say who decided."""
    values = records.column("value")
    headers = _headers(records.column("headers"))
    ingested = _within_calendar(records.column("ingested"))
    ingested_us = ingested.cast(pa.int64()).to_pylist()
    rows = [
        decide(Raw(found, value or b"", ingested * 1000, _Place(records, place)), plan.tenant, plan.parsers, ask)
        for place, (found, value, ingested) in enumerate(zip(headers, _objects(values), ingested_us, strict=True))
    ]
    decided = dict(zip((column.name for column in DECIDED), _columns(rows), strict=True))
    body = pc.if_else(pc.is_in(decided["outcome"], _WITHOUT_BODY), pa.scalar(None, pa.binary()), values)
    columns = {
        **{name: records.column(name) for name in ("topic", "partition", "offset")},
        "ingested": ingested,
        **decided,
        "size_bytes": pc.fill_null(pc.binary_length(values), 0),
        "data": body,
    }
    same = {"tenant": plan.tenant, "flow": batch.flow, "run": batch.run, "batch": batch.number}
    columns |= {name: pa.repeat(value, records.num_rows) for name, value in same.items()}
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in STORED], schema=STORED)


def _within_calendar(times: pa.Array) -> pa.Array:
    """Times as they are within the years 1 to 9999, and the nearest of those for others: a producer may set any time."""
    since_us = pc.min_element_wise(times.cast(pa.int64()), LATEST_NS // 1000)
    return pc.max_element_wise(since_us, EARLIEST_NS // 1000).cast(times.type)


class _Place:
    """Names a row's place in Kafka, only when it is asked for."""

    __slots__ = ("_records", "_row")

    def __init__(self, records: pa.RecordBatch, row: int) -> None:
        self._records = records
        self._row = row

    def __call__(self) -> str:
        return "-".join(str(self._records.column(name)[self._row]) for name in ("topic", "partition", "offset"))


def _columns(rows: Sequence[Row]) -> Iterator[pa.Array]:
    """Rows to columns."""
    columns = list(zip(*map(msgspec.structs.astuple, rows), strict=True)) or [()] * len(DECIDED)
    for column, cells in zip(DECIDED, columns, strict=True):
        yield _readings(cells) if column.type == READINGS_TYPE else pa.array(cells, ARROW[column.type])


def _readings(cells: Sequence[list[tuple[object, ...]]]) -> pa.Array:
    offsets = [0]
    for cell in cells:
        offsets.append(offsets[-1] + len(cell))
    fields = list(zip(*chain.from_iterable(cells), strict=True)) or [()] * READING.num_fields
    flat = [pa.array(each, field.type) for each, field in zip(fields, READING, strict=True)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(flat, fields=list(READING)))


def _objects(array: pa.Array) -> list[bytes | None]:
    """Python objects of a binary array; by way of numpy, ten times as fast as one by one."""
    return list(array.to_numpy(zero_copy_only=False))


def _headers(array: pa.ListArray) -> list[dict[str, bytes]]:
    """Every record's headers, the last of a name counting. Headers without a value are left out."""
    offsets = array.offsets.to_pylist()
    keys, values = array.values.flatten()
    encoded = keys.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    names = [words[index] for index in encoded.indices.to_pylist()]
    bodies = _objects(values)
    found = [dict(zip(names[begin:end], bodies[begin:end], strict=True)) for begin, end in pairwise(offsets)]
    if values.null_count:
        return [{name: body for name, body in each.items() if body is not None} for each in found]
    return found
