"""Rows of table `raw`, without Spark and Kafka."""

from datetime import date

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from flows.record_batches import batch_of, of_events
from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.files import FileWriter, TableFolder, read_rows
from fogline_cloud.flows.tables.schema import MEASURED, RAW_STORED
from fogline_cloud.flows.worker.parse import Plan, parse
from fogline_cloud.flows.worker.raw_rows import RawTask, raw_rows

BATCH = MicroBatch("main", "uuid", 4)
PLAN = Plan(tenant="t", limit_s=60, parsers={})
TODAY = date(2026, 3, 31)


@pytest.fixture
def table(folder) -> TableFolder:
    made = TableFolder(str(folder / "raw"))
    DeltaTable.create(made.uri, RAW_STORED.append(pa.field("day", pa.date32())), partition_by=["day"])
    return made


def task_for(folder):
    return RawTask(tenant="t", folder=folder, topic_ids={"other": "id-1", "topic": "id-2"})


def test_a_row_is_the_record_as_it_was_read(table):
    headers = [("h", b"1"), ("h", b"2"), ("n", None), ("é", b"\xff\x00")]
    records = batch_of([(headers, b"body"), (None, None), ([], b"")])
    rows = raw_rows(task_for(table), BATCH, records)
    assert rows.schema == RAW_STORED
    assert rows.select(records.schema.names).to_pylist() == records.to_pylist()
    assert {tuple(each[name] for name in ("topic_id", "tenant", "flow", "run", "batch")) for each in rows.to_pylist()} == {
        ("id-2", "t", "main", "uuid", 4)
    }


def test_records_are_parsed_from_the_table_as_from_kafka(table, make_event):
    records = of_events([make_event(b'{"t": 1}'), make_event(b"{"), make_event(b"\x00", content_type="image/png")])
    strange = batch_of([(None, None), ([("content-type", None)], b"5"), ([], b"")])
    with FileWriter(table, MEASURED["raw"]) as writer:
        for each in (records, strange):
            writer.add(raw_rows(task_for(table), BATCH, each))
        files = writer.close()
    stored = [some for each in files for some in read_rows(table, each.path).to_batches()]
    from_table, from_kafka = (pa.Table.from_batches(parse(PLAN, BATCH, each)) for each in (stored, [records, strange]))
    timed = ["parse_us"]
    assert from_table.drop_columns(timed).to_pylist() == from_kafka.drop_columns(timed).to_pylist()
    assert from_table.num_rows == 6
