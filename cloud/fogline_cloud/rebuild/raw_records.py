"""Reads table `raw` in the order in which Kafka had the records, some at a time. No Spark is needed."""

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from fogline.errors import Misconfigured
from fogline_cloud.flows.replay.windows import Window, span_files, windows
from fogline_cloud.flows.tables import schema
from fogline_cloud.flows.tables.files import TableFolder
from fogline_cloud.flows.tables.schema import arrow_schema, in_file
from fogline_cloud.flows.tables.table_features import reader_problems
from fogline_cloud.flows.tables.table_log import state_of
from fogline_cloud.kafka.clients import Partition
from fogline_cloud.kafka.committed_records import CommittedRecord, with_values
from fogline_cloud.kafka.records import known_position
from fogline_cloud.rebuild.held import StreamPart, StreamTail, TableProgress

_COLUMNS = ["topic", "partition", "offset", "ingested", "value", "headers"]
_RAW = arrow_schema(in_file(schema.RAW))
_ORDER = [("topic", "ascending"), ("partition", "ascending"), ("ingested", "ascending"), ("offset", "ascending")]


class RawRecords:
    """The tenant's records in table `raw`. A topic that was created again counts as one topic.

    Raises `Misconfigured` if there is no such table.
    """

    def __init__(self, folder: TableFolder, tenant: str) -> None:
        if not DeltaTable.is_deltatable(folder.uri, folder.storage):
            raise Misconfigured(f"there is no table {folder.path}: [flow] raw_days is 0, or another [flow] tables is meant")
        table = DeltaTable(folder.uri, storage_options=folder.storage)
        if found := reader_problems(state_of(table, folder.path)):
            raise Misconfigured(found[0])
        self._folder = folder
        self._tenant = tenant
        self._windows = windows([], span_files(pa.table(table.get_add_actions(flatten=True)), None))

    def read(self) -> Iterator[list[CommittedRecord]]:
        """Yield the records by windows of time, those of a partition in its order."""
        for window in self._windows:
            yield self._within(window)

    def tails(self, partitions: Collection[Partition]) -> TableProgress:
        """Return the last record with a stream of each partition: the table has all before it. It is read from its end."""
        tails: dict[StreamPart, StreamTail] = {}
        clients: dict[Partition, int] = dict.fromkeys(partitions, 0)
        left = set(partitions)
        for window in reversed(self._windows):
            for record in reversed(self._within(window)):
                partition = (record.topic, record.partition)
                if partition not in left:
                    continue
                position = known_position(record.headers, record.value)
                if position is None:
                    clients[partition] += 1
                else:
                    left.discard(partition)
                    tails[partition, (position.gateway, position.stream)] = StreamTail(position.lane, position.last)
            if not left:
                break
        return TableProgress(tails, clients)

    def _within(self, window: Window) -> list[CommittedRecord]:
        kind = _RAW.field("ingested").type
        begin, end = (pa.scalar(each, pa.int64()).cast(kind) for each in (window.begin_us, window.end_us))
        here = (pc.field("tenant") == self._tenant) & (pc.field("ingested") >= begin) & (pc.field("ingested") < end)
        files = ds.dataset(window.raw, schema=_RAW, format="parquet", filesystem=self._folder.for_scans())
        rows = files.to_table(columns=_COLUMNS, filter=here)
        return list(_records(rows.take(pc.sort_indices(rows, _ORDER))))


def _records(rows: pa.Table) -> Iterator[CommittedRecord]:
    for batch in rows.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            headers = with_values([(each["key"], each["value"]) for each in row["headers"] or ()])
            key = dict(headers).get("device_id", b"")
            yield CommittedRecord(row["topic"], row["partition"], row["offset"], key, row["value"] or b"", headers)
