"""Parses rows of `events` again, in a worker: rows in, those that are different now out. No Spark is needed."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.replay.difference import ReadingCells, differences
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.schema import STORED, conformed
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.flows.worker.row_headers import COLUMNS, headers_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Type of a raw record's headers."""
WAS = "was"
"""Column of the former outcome."""
DIFFERENCES = "differences"
"""Column of `differences`."""
CHANGED = STORED.append(pa.field(WAS, pa.string())).append(
    pa.field(DIFFERENCES, pa.list_(pa.struct([("metric", pa.string()), ("change", pa.string())])))
)
"""Columns of the result."""
CHANGED_DDL = f"{WAS} STRING, {DIFFERENCES} ARRAY<STRUCT<metric: STRING, change: STRING>>"
_FROM_PARSER = ("outcome", "reason", "detail", "parser", "parser_digest", "parse_us", "readings", "size_bytes", "data")
_COMPARED = ("outcome", "reason", "parser")
_NOT_OF_A_RUN = MicroBatch("", "", 0)


def reparse(plan: Plan, parser: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are different now, columns `CHANGED`. `batches`: rows of `events`.

    If a row has `value` and `headers`, these are its raw record; else that is made from what the row keeps. `parser`: keep only
    rows that had this parser, or have it now. Must run in the main thread of its process (see `parse`).
    """
    former: deque[pa.Table] = deque()

    def records() -> Iterator[pa.RecordBatch]:
        for each in batches:
            former.append(conformed(pa.Table.from_batches([each]), STORED))
            yield _records(each, former[-1])

    for now in parse(plan, _NOT_OF_A_RUN, records()):
        yield _changed(former.popleft(), pa.Table.from_batches([now]), parser)


def _records(given: pa.RecordBatch, rows: pa.Table) -> pa.RecordBatch:
    """Return the raw records of rows, columns `fogline_cloud.flows.driver.source.RAW`."""
    columns = {name: rows.column(name).combine_chunks() for name in ("topic", "partition", "offset", "ingested")}
    if "headers" not in given.schema.names:
        values, headers = rows.column("data").combine_chunks(), pa.array(_kept_headers(rows), HEADERS)
    elif not given.column("headers").null_count:
        values, headers = given.column("value"), given.column("headers")
    else:
        recorded, kept = given.column("headers").is_valid(), pa.array(_kept_headers(rows), HEADERS)
        headers = pc.if_else(recorded, given.column("headers").cast(HEADERS), kept)
        values = pc.if_else(recorded, given.column("value"), rows.column("data").combine_chunks())
    return pa.RecordBatch.from_pydict({**columns, "value": values, "headers": headers})


def _kept_headers(rows: pa.Table) -> list[Any]:
    cells = {name: _texts(rows.column(name)) for name in COLUMNS}
    return [headers_of(dict(zip(cells, row, strict=True))) for row in zip(*cells.values(), strict=True)]


def _texts(column: pa.ChunkedArray) -> list[Any]:
    found: list[Any] = (pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ") if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


def _changed(former: pa.Table, now: pa.Table, parser: str | None) -> pa.RecordBatch:
    merged = former
    for name in _FROM_PARSER:
        merged = merged.set_column(STORED.get_field_index(name), STORED.field(name), now.column(name))
    old, new = (zip(*_compared(table), strict=True) for table in (former, merged))
    picked, notes = list[int](), list[list[tuple[str, str]]]()
    for row, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after and parser in {None, before[2], after[2]}:
            picked.append(row)
            notes.append(list(differences(before[3], after[3])))
    chosen = pa.array(picked, pa.int64())
    columns = [*merged.take(chosen).columns, former.column("outcome").take(chosen), pa.array(notes, CHANGED.field(-1).type)]
    (batch,) = pa.table(columns, schema=CHANGED).combine_chunks().to_batches() or [_NONE]
    return batch


def _compared(rows: pa.Table) -> Iterator[list[Any]]:
    """Yield the columns that decide if a row is different. Readings as tuples: Arrow's dictionaries are ten times as slow."""
    yield from (rows.column(name).to_pylist() for name in _COMPARED)
    lists = rows.column("readings").combine_chunks()
    flat = pc.list_flatten(lists)
    times = pc.struct_field(flat, "time").cast(pa.int64())
    fields = (pc.struct_field(flat, name).to_pylist() for name in ReadingCells._fields[:-1])
    cells = list(map(ReadingCells, *fields, times.to_pylist()))
    ends = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    found, begin = [], 0
    for length in ends:
        found.append(cells[begin : begin + length])
        begin += length
    yield found


_NONE = pa.RecordBatch.from_pylist([], schema=CHANGED)
