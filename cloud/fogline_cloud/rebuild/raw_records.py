"""Reads table `raw` in the order in which Kafka had the records, some at a time. No Spark is needed."""

from collections import Counter
from collections.abc import Iterator

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
from fogline_cloud.kafka.records import COPIED, REBUILT, known_position
from fogline_cloud.rebuild.held import StreamPart, StreamTail, TableProgress

_PLACE = ["topic", "partition", "offset", "ingested", "headers"]
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
        spans = span_files(pa.table(table.get_add_actions(flatten=True)), None)
        self._files = [each.path for each in spans]
        self._windows = windows([], spans)

    def read(self) -> Iterator[list[CommittedRecord]]:
        """Yield the records by windows of time, those of a partition in its order."""
        for window in self._windows:
            yield self._within(window, [*_PLACE, "value"])

    def tails(self) -> TableProgress:
        """Return the last record that a gateway sent, of each partition: the table has all before it. It is read from its end.

        Of the records behind it, those that `rebuild` had appended are named too.
        """
        tails: dict[StreamPart, StreamTail] = {}
        clients: Counter[Partition] = Counter()
        left, named = self._partitions(), set[Partition]()
        for window in reversed(self._windows):
            if not left:
                break
            for record in reversed(self._within(window, _PLACE)):
                partition = (record.topic, record.partition)
                if partition not in left:
                    continue
                position = known_position(record.headers, record.value)
                if position is not None:
                    part = (position.gateway, position.stream, record.partition)
                    found = StreamTail(position.lane, position.last)
                    tails[part] = max(tails.get(part, found), found, key=lambda each: each.last)
                    named.add(partition)
                    if not {REBUILT, COPIED}.intersection(name for name, _ in record.headers):
                        left.discard(partition)
                elif partition not in named:
                    clients[partition] += 1
        return TableProgress(tails, clients)

    def _partitions(self) -> set[Partition]:
        """Return the partitions of which the table has records: without them, one that never had any is looked for in vain."""
        files = ds.dataset(self._files, schema=_RAW, format="parquet", filesystem=self._folder.for_scans())
        rows = files.to_table(columns=["topic", "partition"], filter=pc.field("tenant") == self._tenant)
        return {(row["topic"], row["partition"]) for row in rows.group_by(["topic", "partition"]).aggregate([]).to_pylist()}

    def _within(self, window: Window, columns: list[str]) -> list[CommittedRecord]:
        kind = _RAW.field("ingested").type
        begin, end = (pa.scalar(each, pa.int64()).cast(kind) for each in (window.begin_us, window.end_us))
        here = (pc.field("tenant") == self._tenant) & (pc.field("ingested") >= begin) & (pc.field("ingested") < end)
        files = ds.dataset(window.raw, schema=_RAW, format="parquet", filesystem=self._folder.for_scans())
        rows = files.to_table(columns=columns, filter=here)
        return list(_records(rows.take(pc.sort_indices(rows, _ORDER))))


def _records(rows: pa.Table) -> Iterator[CommittedRecord]:
    for batch in rows.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            headers = with_values([(each["key"], each["value"]) for each in row["headers"] or ()])
            key = dict(headers).get("device_id", b"")
            yield CommittedRecord(row["topic"], row["partition"], row["offset"], key, row.get("value") or b"", headers)
