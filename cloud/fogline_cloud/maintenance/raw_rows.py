"""Records of one device in table `raw`: the header `device_id` names it. Reads some rows at a time."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date
from queue import Empty, Queue

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fogline_cloud.maintenance.table import MaintainedTable

_ROWS = 4096  # rows in a batch
_WAITING = 4  # batches in memory at the same time, about


def count_of_device(table: MaintainedTable, day: date, tenant: str, device: str) -> int:
    """Return the number of records of a device in one day of the table's loaded version."""
    return sum(_of_device(rows, tenant, device).true_count for rows in _rows(table, day, ["tenant", "headers"]))


@contextmanager
def rows_of_others(table: MaintainedTable, day: date, tenant: str, device: str) -> Iterator[pa.RecordBatchReader]:
    """Read all other records of that day, to be consumed within the block."""
    schema = pa.schema(table.table.schema().to_arrow())
    waiting: Queue[pa.RecordBatch | None] = Queue(_WAITING)
    abandoned = threading.Event()

    def read() -> None:
        try:
            for rows in _rows(table, day, None):
                waiting.put(_as_table(rows.filter(pc.invert(_of_device(rows, tenant, device))), day, schema))
                if abandoned.is_set():
                    return
        finally:
            waiting.put(None)

    # delta-rs consumes the rows on a thread of its runtime, where its own file system must not be used.
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)

        def batches() -> Iterator[pa.RecordBatch]:
            while (rows := waiting.get()) is not None:
                yield rows
            reading.result()  # raises if a file could not be read

        try:
            yield pa.RecordBatchReader.from_batches(schema, batches())
        finally:
            abandoned.set()
            while not reading.done():
                with suppress(Empty):
                    waiting.get(timeout=0.1)


def _as_table(rows: pa.RecordBatch, day: date, schema: pa.Schema) -> pa.RecordBatch:
    days = pa.repeat(pa.scalar(day, pa.date32()), rows.num_rows)
    columns = [(days if field.name == "day" else rows.column(field.name)).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _rows(table: MaintainedTable, day: date, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    files = pa.table(table.table.get_add_actions(flatten=True))
    files = files.filter(pc.equal(files.column("partition.day"), pa.scalar(day, pa.date32())))
    sizes = dict(zip(files.column("path").to_pylist(), files.column("size_bytes").to_pylist(), strict=True))
    system = table.folder.file_system(sizes)
    for path in sizes:
        with system.open_input_file(path) as source:
            yield from pq.ParquetFile(source).iter_batches(_ROWS, columns=columns)


def _of_device(rows: pa.RecordBatch, tenant: str, device: str) -> pa.Array:
    """Return a mask of the device's records."""
    headers = rows.column("headers")
    each = pc.list_flatten(headers)
    named = pc.and_(
        pc.equal(pc.struct_field(each, "key"), "device_id"), pc.equal(pc.struct_field(each, "value"), device.encode())
    )
    numbers = pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)), 1)
    found = pc.is_in(numbers, pc.list_parent_indices(headers).filter(pc.fill_null(named, False)).cast(pa.int64()))
    return pc.and_(found, pc.fill_null(pc.equal(rows.column("tenant"), tenant), False))
