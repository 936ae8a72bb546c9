"""Kafka records as Spark hands them to a worker."""

from collections.abc import Sequence

import pyarrow as pa

from fogline.events.event import Event
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.kafka import records

BATCH = MicroBatch("main", "uuid", 4)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch_of(given: Sequence[tuple[list[tuple[str, bytes | None]] | None, bytes | None]]) -> pa.RecordBatch:
    """Records as Spark hands them to a worker."""
    count = len(given)
    headers = [None if pairs is None else [{"key": key, "value": value} for key, value in pairs] for pairs, _ in given]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["topic"] * count),
            pa.array([3] * count, pa.int32()),
            pa.array(range(count), pa.int64()),
            pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
            pa.array([value for _, value in given], pa.binary()),
            pa.array(headers, _HEADERS),
        ],
        names=["topic", "partition", "offset", "ingested", "value", "headers"],
    )


def of_events(events: Sequence[Event]) -> pa.RecordBatch:
    made = [records.record_of(event) for event in events]
    return batch_of([(list(record.headers), record.value) for record in made])
