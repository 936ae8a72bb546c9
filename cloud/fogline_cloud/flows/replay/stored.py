"""Reads rows of `events` with their records from the files of the tables, in a worker, window by window. No Spark is needed.

Spark would join both tables by a shuffle of all bodies and headers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fogline_cloud.flows.replay.selection import Selection
from fogline_cloud.flows.replay.windows import ROWS, Window
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import STORED, EventOutcome, arrow_schema, in_file

POSITION = ["topic", "partition", "offset", "ingested"]
"""What identifies a record in table `raw`; the time, because a topic may be created again."""
RUN = "from-raw-"
"""Prefix of the run of rows whose records were missing. Each day has one, so that a repeated replay replaces its own rows."""
PartitionKey = tuple[str, str | None, int]
"""Topic, its id, and partition."""
LowestOffsets = Mapping[PartitionKey, int]
"""The first offset that Kafka has of each partition. A topic with another id was deleted: its records are gone."""
NEVER = 2**62
"""Above every offset."""
_RAW = arrow_schema(in_file(schema.RAW))
_TIME = STORED.field("ingested").type
_MAX_ROWS = 2 * ROWS
_MAX_BODIES_BYTES = 64 << 20
_BATCH_ROWS = 5000
_PARTITION = ["topic", "topic_id", "partition"]


class StoredRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to read. `raw`: `None` if there is no such table. `finished`: the newest finished micro-batch of each run.

    `find_missing`: look for records without a row too.
    """

    events: TableFolder
    raw: TableFolder | None
    selection: Selection
    flow: str
    tenant: str
    finished: dict[str, int]
    find_missing: bool

    @property
    def of_flow(self) -> pc.Expression:
        """The rows of the flow, in either table."""
        return (pc.field("flow") == self.flow) & (pc.field("tenant") == self.tenant)

    @property
    def condition(self) -> pc.Expression:
        """The selected rows of micro-batches that the flow has finished."""
        done = pc.starts_with(pc.field("run"), RUN)
        for run, number in self.finished.items():
            done |= (pc.field("run") == run) & (pc.field("batch") <= number)
        return self.of_flow & self.selection.condition() & done


class Coverage(msgspec.Struct):
    """One partition of a topic. `last`: largest offset of a record with a row. `first_without`: least one without."""

    topic: str
    topic_id: str | None
    partition: int
    last: int | None = None
    first_without: int | None = None


def read_stored(stored: StoredRows, windows: Iterable[Window], found: list[Coverage]) -> Iterator[pa.RecordBatch]:
    """Yield rows of `events` whose record is known, with columns `value` and `headers`: those of the record, if `raw` has it.

    `found` gets the coverage of each window, if `find_missing`.
    """
    for window in windows:
        for begin_us, end_us in _parts(stored, window):
            yield from _part(stored, window, _span(begin_us, end_us), found)


def may_miss(every: Iterable[Coverage], *, to_the_end: bool, lowest: LowestOffsets = MappingProxyType({})) -> bool:
    """Return True if a record without a row may come before one with a row, or Kafka has it no more (`lowest`).

    `to_the_end`: no later day was left out.
    """
    last: dict[PartitionKey, int] = {}
    without: dict[PartitionKey, int] = {}
    for each in every:
        key = (each.topic, each.topic_id, each.partition)
        if each.last is not None:
            last[key] = max(each.last, last.get(key, each.last))
        if each.first_without is not None:
            without[key] = min(each.first_without, without.get(key, each.first_without))
    known = {topic for topic, _, _ in lowest}
    return any(
        not to_the_end or first < last.get(key, first) or first < lowest.get(key, NEVER if key[0] in known else 0)
        for key, first in without.items()
    )


def _parts(stored: StoredRows, window: Window) -> Iterator[tuple[int, int]]:
    """Yield the parts of a window that fit into memory: statistics do not tell how the rows of a file are spread."""
    where = _span(window.begin_us, window.end_us) & stored.condition
    rows = _read(stored.events, window.events, STORED, ["ingested", "size_bytes"], where)
    if not rows.num_rows and not stored.find_missing:
        return
    times = rows.column("ingested").cast(pa.int64()).to_numpy()
    sizes = pc.fill_null(rows.column("size_bytes"), 0).to_numpy()
    order = np.argsort(times, kind="stable")
    numbers = np.maximum(np.arange(len(order)) // _MAX_ROWS, np.cumsum(sizes[order]) // _MAX_BODIES_BYTES)
    cuts = np.unique(times[order][1:][np.diff(numbers) > 0]).tolist()
    bounds = [window.begin_us, *(each for each in cuts if each > window.begin_us), window.end_us]
    yield from pairwise(bounds)


def _part(stored: StoredRows, window: Window, span: pc.Expression, found: list[Coverage]) -> Iterator[pa.RecordBatch]:
    rows = _read(stored.events, window.events, STORED, STORED.names, span & stored.condition)
    if stored.raw is None:
        yield from rows.filter(_body_is_kept(rows)).to_batches(_BATCH_ROWS)
        return
    if stored.find_missing:
        landed = _read(stored.events, window.events, STORED, POSITION, span & stored.of_flow)
        known = _read(stored.raw, window.raw, _RAW, [*POSITION, "topic_id"], span & stored.of_flow)
        found += _coverage(known, landed)
    if rows.num_rows:
        yield from _with_records(rows, _read(stored.raw, window.raw, _RAW, [*POSITION, "value", "headers"], span))


def _with_records(rows: pa.Table, raw: pa.Table) -> Iterator[pa.RecordBatch]:
    raw = raw.filter(raw.column("headers").is_valid())
    places = _places(rows, raw)
    known = pc.or_(pa.chunked_array([pa.array(places >= 0)]), _body_is_kept(rows))
    rows, places = rows.filter(known), places[known.to_numpy()]
    values, headers = (raw.column(name).combine_chunks() for name in ("value", "headers"))
    for begin in range(0, rows.num_rows, _BATCH_ROWS):
        some = rows.slice(begin, _BATCH_ROWS).combine_chunks()
        of_some = places[begin : begin + _BATCH_ROWS]
        at = pa.array(of_some, mask=of_some < 0)
        table = some.append_column("value", _taken(values, at)).append_column("headers", _taken(headers, at))
        yield from table.combine_chunks().to_batches()


def _taken(column: pa.Array | pa.ChunkedArray, at: pa.Array) -> pa.ChunkedArray:
    taken = column.take(at)
    return taken if isinstance(taken, pa.ChunkedArray) else pa.chunked_array([taken])


def _places(rows: pa.Table, raw: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each row the place of its record, -1 for none."""
    joined = _numbered(rows, "row").join(_numbered(raw, "place"), POSITION, join_type="inner", use_threads=False)
    places = np.full(rows.num_rows, -1, np.int64)
    places[joined.column("row").to_numpy()] = joined.column("place").to_numpy()
    return places


def _coverage(raw: pa.Table, landed: pa.Table) -> list[Coverage]:
    joined = _numbered(raw, "record", [*POSITION, "topic_id"]).join(_numbered(landed, "row"), POSITION, use_threads=False)
    has_row = joined.column("row").is_valid()
    return [
        *_extremes(joined.filter(has_row), "max", "last"),
        *_extremes(joined.filter(pc.invert(has_row)), "min", "first_without"),
    ]


def _extremes(rows: pa.Table, what: str, attribute: str) -> list[Coverage]:
    grouped: list[Mapping[str, Any]] = rows.group_by(_PARTITION, use_threads=False).aggregate([("offset", what)]).to_pylist()
    return [Coverage(*(each[name] for name in _PARTITION), **{attribute: each[f"offset_{what}"]}) for each in grouped]


def _numbered(rows: pa.Table, name: str, columns: Sequence[str] = POSITION) -> pa.Table:
    return rows.select(list(columns)).append_column(name, pa.array(np.arange(rows.num_rows)))


def _body_is_kept(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the rows that keep the body and the headers. Without `recordedtime` the headers could not be read."""
    empty = pc.fill_null(pc.equal(rows.column("size_bytes"), 0), False)
    refers = pc.and_(rows.column("dataref").is_valid(), pc.not_equal(rows.column("outcome"), EventOutcome.CHUNK.value))
    body = pc.or_(rows.column("data").is_valid(), pc.or_(empty, refers))
    return pc.and_(body, rows.column("recordedtime").is_valid())


def _span(begin_us: int, end_us: int) -> pc.Expression:
    return (pc.field("ingested") >= pa.scalar(begin_us, _TIME)) & (pc.field("ingested") < pa.scalar(end_us, _TIME))


def _read(folder: TableFolder, paths: list[str], columns: pa.Schema, names: Sequence[str], where: pc.Expression) -> pa.Table:
    """Return rows of these files. A column that a file lacks is null."""
    if not paths:
        return pa.schema([columns.field(name) for name in names]).empty_table()
    files = ds.dataset(paths, schema=columns, format="parquet", filesystem=folder.for_scans())
    return files.to_table(columns=list(names), filter=where)
