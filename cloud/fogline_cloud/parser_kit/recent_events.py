"""The last events of a kind from table `raw`, read without Spark."""

from collections.abc import Iterator

import pyarrow as pa
from deltalake import DeltaTable

from fogline.events.event import Event
from fogline_cloud.flows.tables.files import TableFolder, read_rows
from fogline_cloud.flows.tables.schema import KAFKA_RECORD
from fogline_cloud.flows.worker.classify import ReadRecord
from fogline_cloud.flows.worker.parse import read_batch
from fogline_cloud.flows.worker.parser_choice import Choose

MOST_EVENTS = 200
MOST_RECORDS = 50_000
"""Records of any kind that are looked at."""


def recent_events(raw: TableFolder, tenant: str, choose: Choose, parser: str) -> list[Event]:
    """Return up to `MOST_EVENTS` of the newest events that `choose` gives to a parser; none if there is no table.

    Raises `DeltaError` or `OSError` if the table cannot be read.
    """
    found: list[Event] = []
    seen = 0
    for records in _newest(raw):
        read = read_batch(records, tenant, choose)
        found += [each.event for each in read if isinstance(each, ReadRecord) and each.parser == parser]
        seen += records.num_rows
        if len(found) >= MOST_EVENTS or seen >= MOST_RECORDS:
            break
    return found[:MOST_EVENTS]


def _newest(raw: TableFolder) -> Iterator[pa.RecordBatch]:
    """Yield records, the newest file first."""
    if not DeltaTable.is_deltatable(raw.uri, raw.storage):
        return
    files = pa.table(DeltaTable(raw.uri, storage_options=raw.storage).get_add_actions(flatten=True))
    paths, newest = (files.column(name).to_pylist() for name in ("path", "max.ingested"))
    for _, path in sorted(zip(newest, paths, strict=True), reverse=True):
        yield from reversed(read_rows(raw, path, list(KAFKA_RECORD)).combine_chunks().to_batches())
