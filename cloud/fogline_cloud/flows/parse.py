"""One pass of parsing over Arrow batches, as it runs in a Spark worker. No Spark is imported here.

In come the columns of `fogline_cloud.flows.source.RAW`, out go those of `schema.PARSED`. Headers are taken apart
column by column, and what a row needs not decide about (place, size, body) never becomes a Python object twice.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.asking import Asking
from fogline_cloud.flows.limit import TimeLimit
from fogline_cloud.flows.outcome import Ask, Raw, Row, decide
from fogline_cloud.flows.parsers import installed
from fogline_cloud.flows.schema import DECIDED, PARSED, READINGS_TYPE, Outcome

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_READING = pa.struct(
    [
        ("ordinal", pa.int32()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("unit", pa.string()),
        ("time", _TIMESTAMP),
    ]
)
_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": _TIMESTAMP,
    "BINARY": pa.binary(),
    READINGS_TYPE: pa.list_(_READING),
}
SCHEMA = pa.schema([(column.name, _ARROW[column.type]) for column in PARSED])
_WITHOUT_BODY = pa.array([Outcome.OK.value, Outcome.DUPLICATE.value])


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass needs to know. `parsers`: content type to parser, over the default choice.

    `batch` is stamped on the rows here and not by Spark, where a number that changes with every batch would stand in
    the generated code, and have it compiled again each time.
    """

    tenant: str
    limit_s: float
    parsers: dict[str, str]
    batch: int = 0


def parse(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decide every record of one task. Runs in the main thread of its process (the time limit needs it)."""
    with TimeLimit(plan.limit_s) as limit:
        asking = Asking(installed(), limit)
        for batch in batches:
            yield decide_batch(batch, plan, asking.ask)


def decide_batch(batch: pa.RecordBatch, plan: Plan, ask: Ask) -> pa.RecordBatch:
    """The decisions about one batch, beside the columns that pass through."""
    values = batch.column("value")
    headers = _headers(batch.column("headers"))
    ingested_us = batch.column("ingested").cast(pa.int64()).to_pylist()
    rows = [
        decide(Raw(found, value or b"", ingested * 1000, _Place(batch, place)), plan.tenant, plan.parsers, ask)
        for place, (found, value, ingested) in enumerate(zip(headers, _objects(values), ingested_us, strict=True))
    ]
    decided = dict(zip((column.name for column in DECIDED), _columns(rows), strict=True))
    body = pc.if_else(pc.is_in(decided["outcome"], _WITHOUT_BODY), pa.scalar(None, pa.binary()), values)
    columns = {
        **{name: batch.column(name) for name in ("topic", "partition", "offset", "ingested")},
        **decided,
        "size_bytes": pc.fill_null(pc.binary_length(values), 0),
        "data": body,
        "batch": pa.repeat(plan.batch, batch.num_rows),
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in SCHEMA], schema=SCHEMA)


class _Place:
    """Names a row's place in Kafka, only when it is asked for."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: pa.RecordBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    def __call__(self) -> str:
        return "-".join(str(self._batch.column(name)[self._row]) for name in ("topic", "partition", "offset"))


def _columns(rows: Sequence[Row]) -> Iterator[pa.Array]:
    """Rows to columns."""
    columns = list(zip(*map(msgspec.structs.astuple, rows), strict=True)) or [()] * len(DECIDED)
    for column, cells in zip(DECIDED, columns, strict=True):
        yield _readings(cells) if column.type == READINGS_TYPE else pa.array(cells, _ARROW[column.type])


def _readings(cells: Sequence[list[tuple[object, ...]]]) -> pa.Array:
    offsets = [0]
    for cell in cells:
        offsets.append(offsets[-1] + len(cell))
    fields = list(zip(*chain.from_iterable(cells), strict=True)) or [()] * _READING.num_fields
    flat = [pa.array(each, field.type) for each, field in zip(fields, _READING, strict=True)]
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays(flat, fields=list(_READING)))


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
