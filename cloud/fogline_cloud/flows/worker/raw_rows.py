"""Rows of table `raw`, in a worker, without Spark: raw records as they were read, and no parsers."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.schema import MEASURED, RAW_STORED
from fogline_cloud.flows.worker.parse import within_calendar
from fogline_cloud.flows.worker.tasks import StagedFiles, reply


class RawTask(msgspec.Struct, frozen=True, kw_only=True):
    """Input of every task. `topic_ids`: id by name of the raw topics."""

    tenant: str
    folder: TableFolder
    topic_ids: Mapping[str, str]


def stage_raw(task: RawTask, batch: MicroBatch, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write raw records to files of `raw`."""
    with FileWriter(task.folder, MEASURED["raw"]) as writer:
        for each in records:
            writer.add(raw_rows(task, batch, each))
        yield reply(StagedFiles(writer.close()))


def raw_rows(task: RawTask, batch: MicroBatch, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of some records, which have the columns `KAFKA_RECORD`."""
    known = pa.array(task.topic_ids.keys(), pa.string()), pa.array(task.topic_ids.values(), pa.string())
    same = {"tenant": task.tenant, "flow": batch.flow, "run": batch.run, "batch": batch.number}
    columns = {
        **dict(zip(records.schema.names, records.columns, strict=True)),
        "ingested": within_calendar(records.column("ingested")),
        "topic_id": known[1].take(pc.index_in(records.column("topic"), known[0])),
        **{name: pa.repeat(value, records.num_rows) for name, value in same.items()},
    }
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in RAW_STORED], schema=RAW_STORED)
