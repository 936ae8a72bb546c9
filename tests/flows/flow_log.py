"""A table `events` without Spark and Kafka, and the rows, batches and owners of a flow that commits to its log."""

import pyarrow as pa
from deltalake import DeltaTable

from fogline_cloud.flows.tables.batch import MicroBatch
from fogline_cloud.flows.tables.delta_log import DeltaLog
from fogline_cloud.flows.tables.files import FileWriter, TableFolder
from fogline_cloud.flows.tables.owner import Owner
from fogline_cloud.flows.tables.schema import EVENTS, arrow_schema

FIRST, SECOND = (Owner("t", "main", run, epoch) for run, epoch in (("run-1", 1), ("run-2", 2)))
COLUMNS = arrow_schema(EVENTS[:-1]).append(pa.field("day", pa.date32()))


def made_table(folder) -> TableFolder:
    """Create the table."""
    made = TableFolder(str(folder / "events"))
    DeltaTable.create(made.uri, COLUMNS, partition_by=["day"])
    return made


def files(table, *sequences):
    """Write rows with these sequences to files that no commit names."""
    rows = {"ingested": pa.array([0] * len(sequences), pa.timestamp("us", tz="UTC")), "sequence": pa.array(sequences)}
    with FileWriter(table, ("sequence",)) as writer:
        writer.add(pa.RecordBatch.from_pydict(rows))
        return writer.close()


def sequences(table):
    """Return the sequences of the table's rows."""
    return sorted(DeltaTable(table.uri).to_pyarrow_table(columns=["sequence"])["sequence"].to_pylist())


def batch(owner, number):
    """Return a micro-batch of an owner."""
    return MicroBatch("main", owner.run, number)


def made_log(table) -> DeltaLog:
    """Open the log, and take it over."""
    made = DeltaLog("events", table)
    made.take_over(FIRST, {})
    return made
